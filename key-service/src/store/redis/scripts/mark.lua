-- Records the time at which a data directory has seen the store.
--
-- Two writes of a script are kept as one transaction, as nearly all of the store is. A server that leaves those out when
-- it reads its file again (it does so as its user `default`, who may not be allowed them) leaves out this mark as well.
--
-- KEYS  the marks
-- ARGV  the data directory, the time
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[1], 'last', ARGV[2])
return redis.status_reply('OK')
