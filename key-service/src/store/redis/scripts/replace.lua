-- Replaces a text, unless the text has changed.
--
-- KEYS  the text
-- ARGV  the text as it was seen, empty for none; the new text
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
