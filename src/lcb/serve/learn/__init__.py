"""Learns model versions from the log in a child process while the service runs.

schedule      when to learn
supervisor    runs one job at a time, checks its result, writes it into the log
process       the child process as the service sees it
job           the messages between the two
worker        the child process: reads the log (training_data), fits models, compares them (judge)
departures    writes that users have left, which seats them in a mixture
refits        when a mixture is refitted, and its result
refit         the same in the child process
versions      the model versions as the API shows them
"""
