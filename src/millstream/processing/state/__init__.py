"""What jobs remember: large maps in pages, and checkpoints looked into, copied and moved."""
