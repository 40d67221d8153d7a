"""Who comes in, who that is, and what they may do: the shell around `security/`.

acceptor, admission, protection   a client is let in: places, TLS
logins, connection_login          who it is
permit, access_control            what it may do; guarded_topics is how handlers meet it
client_quotas, connection_throttle   how much of it
"""
