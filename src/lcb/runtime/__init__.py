"""How work runs on this machine: processes and threads, memory, arrays in files, compiled code."""
