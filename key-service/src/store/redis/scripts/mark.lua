-- Records the time at which a data directory has seen the store.
--
-- Two writes of a script are kept as a transaction, like nearly all of the store. A server that leaves out
-- transactions while reading the file again (as the user `default`, who may not be allowed these commands) leaves out
-- this mark as well.
--
-- KEYS  the marks
-- ARGV  the data directory, the time
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[1], 'last', ARGV[2])
return redis.status_reply('OK')
