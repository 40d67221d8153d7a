"""Jobs: functions of frames with a name, a directory and an epoch, run and run again.

What a job is (`job.py`), whether a changed one may go on (`plan_shape.py`), what to do about a
failure (`job_failure.py`, `restart_policy.py`) and how it gets on (`progress.py`) are pure;
`job_run.py` runs one, `supervisor.py` all.
"""
