"""Who may do what: authentication, authorisation, quotas, and what TLS needs.

Everything here is pure (values in, values out; time and randomness are parameters), except
`certificates.py` and `tls.py`, which read and write PEM files. Nothing here opens a socket, waits
or stores: the shell around it does, and puts the records into `__millstream_metadata`.

    listening       what may listen where            tls           certificates to an SSLContext
    sasl_session    a connection's way to a user     certificates  a test CA
    exchange        what a SASL mechanism is         acls          who may do what to what
    scram, plain    the mechanisms                   acl_apis      listing and changing them
    credentials     what is kept of passwords        requirements  what each API needs
    login_attempts  how long a guesser must wait     denials       audit lines, not too many
    quotas          how much a client may do         throttle      when it has done too much
"""
