-- Reads the label and the hint of API keys.
--
-- KEYS  the texts of each key
local names = {}
for n, key in ipairs(KEYS) do names[n] = redis.call('HMGET', key, 'label', 'hint') end
return names
