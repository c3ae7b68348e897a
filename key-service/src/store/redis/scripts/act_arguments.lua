-- The event of an act, which scripts that govern write together with the act. They begin with this part, `event_index` and `events`, which
-- take their arguments from the ends of the lists.
--
-- KEYS  at the end: the events, the numbers of events, and the index of events
-- ARGV  at the end: the event (empty: none), its id, and the time before which events are dropped
local INDEX, NUMBERS, EVENTS = table.remove(KEYS), table.remove(KEYS), table.remove(KEYS)
local BEGINS, EVENT_ID, EVENT = tonumber(table.remove(ARGV)), table.remove(ARGV), table.remove(ARGV)
local tells = true

