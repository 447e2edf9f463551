"""Child processes that make outbound requests for the broker, so that it can use every core.

A *courier* is a process that the broker starts.  It gets requests from the broker over a pair of
connected sockets, makes them, and sends the outcomes back.  It also reads topics.  It opens no
database and no file of the data directory.

``messages``  what the broker and a courier send each other
``link``      sends and takes batches of messages over the sockets
``crew``      the broker's side: hands each request, and each reading, to the courier of its host
``courier``   the broker's side of one courier: a process that is watched and replaced
``fork_server``  loads the program once, and forks that process
``spawning``  starts the fork server, and reads the last words of processes
``bodies``    the broker's side: sends each large body once
``carrying``  the courier's side: makes the requests
``reading``   the courier's side: reads topics
``confinement``  takes from the courier's process what it does not need
``system_calls``  takes system calls from it
"""
