"""Share groups at work: the shell around `share/`.

share_groups                 who is in a group
share_partitions, served_share, share_reads   which record is whose, and who waits for one
share_store, share_state_log     what of it is durable
dead_letters                 what a group has given up
"""
