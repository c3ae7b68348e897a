-- Runs commands that only read, all as of one moment. It writes nothing, so a full Redis runs it too.
--
-- KEYS: the name that each command reads. ARGV: for each command its name, the number of its words, and the words.
-- There are few enough for `unpack`, which fails above 8,000.
local answers, at = {}, 1
for n = 1, #KEYS do
  local last = at + 1 + ARGV[at + 1]
  answers[n] = redis.call(ARGV[at], KEYS[n], unpack(ARGV, at + 2, last))
  at = last + 1
end
return answers
