-- The event of an act, which scripts that govern write together with the act. They begin with this part, `event_index` and `events`, which
-- take their arguments from the ends of the lists.
--
-- KEYS  at the end: the events, the numbers of events, and the index of events
-- ARGV  at the end: the event (empty: none), its id, and the bounds of events: the time before which
--       they are dropped, the most events, their most bytes, and 1 where the store is nearly full, as doubles
local INDEX, NUMBERS, EVENTS = table.remove(KEYS), table.remove(KEYS), table.remove(KEYS)
local EVENTS_KEPT, EVENT_ID, EVENT = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
local tells = true

