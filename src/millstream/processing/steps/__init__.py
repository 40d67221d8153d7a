"""Scripts of steps that try a job out over real Spark and a real broker (`millstream.testing`)."""
