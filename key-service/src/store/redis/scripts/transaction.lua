-- Runs commands together: a transaction for users who may not run MULTI. Returns 1, or 0 where a record that has to exist
-- does not, and nothing was run.
--
-- KEYS  the names in the commands
-- ARGV  'exists' where the first name has to exist, else 'always'; then each command's number of words, and its words
if ARGV[1] == 'exists' and redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local at = 2
while at < #ARGV do
  local words = tonumber(ARGV[at])
  redis.call(unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
return 1
