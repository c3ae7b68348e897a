//! Writes the arguments for the script: what to compare, and which commands to run.

use std::borrow::Cow;

use redis::{Cmd, cmd};

use super::key_space::KeySpace;
use crate::records::{Commit, Failure, Guard, Index, Log, Name, Place, Revision, Set, Space, Write};

/// Maximum number of words in a read or a command. The script passes the words to `unpack`, which fails above 8,000 of
/// them. In a commit, it could fail when other commands have already written. The number is even, so that a name and
/// its record stay together.
pub(super) const MOST_WORDS_OF_A_CALL: usize = 4_000;
/// Number of words before the values of an `XADD`.
const WORDS_OF_AN_APPEND: usize = 4;
/// Maximum number of words in a commit. For such a commit, Redis needs a fraction of a second. Meanwhile it serves
/// nobody else.
const MOST_WORDS_AT_ONCE: usize = 250_000;
/// Maximum number of names in a commit. In the plan, each name is one byte.
const MOST_NAMES: usize = 255;
/// Maximum length of the plan in bytes. The script unpacks all bytes at once into a table, which fails above 8,000 of
/// them.
const MOST_PLANNED: usize = 4_000;

pub(super) struct Arguments<'a> {
    names: &'a KeySpace,
    space: &'a Space,
    keys: Vec<(Place, Vec<u8>)>,
    /// Instructions for the script, as bytes.
    plan: Vec<u8>,
    seen: Vec<u8>,
    words: Words<'a>,
    /// The positions of the guards in the commit, in the order in which the script has the guards.
    order: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum ScriptCommand {
    Xadd = 1,
    Hdel,
    Unlink,
    Zrem,
    Hset,
    Zadd,
    Xtrim,
}

impl<'a> Arguments<'a> {
    /// Writes the arguments for a commit. Fails if the commit is too large for Redis to run as a whole.
    pub(super) fn of(names: &'a KeySpace, space: &'a Space, commit: &'a Commit) -> Result<Self, Failure> {
        let (keys, plan, seen) = (Vec::with_capacity(10), Vec::with_capacity(64), Vec::with_capacity(64));
        let (words, order) = (Vec::with_capacity(64), Vec::new());
        let mut arguments = Self { names, space, keys, plan, seen, words, order };
        arguments.guards(&commit.guards);
        CommandsByKind::of(&commit.writes)?.write(&mut arguments);
        arguments.check()?;
        Ok(arguments)
    }

    /// Refuses a commit that the script could not complete.
    fn check(&self) -> Result<(), Failure> {
        let bounds = [
            ("words", self.words.len(), MOST_WORDS_AT_ONCE),
            ("names", self.keys.len(), MOST_NAMES),
            ("bytes of its plan", self.plan.len(), MOST_PLANNED),
        ];
        let Some((what, found, most)) = bounds.into_iter().find(|(_, found, most)| found > most) else {
            return Ok(());
        };
        Err(Failure::NotDone(format!("the commit has {found} {what}; Redis accepts at most {most}")))
    }

    /// Returns a command that runs the script, given by its hash or its text.
    pub(super) fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len());
        for (_, key) in &self.keys {
            command.arg(key);
        }
        command.arg(&self.plan).arg(&self.seen);
        for word in &self.words {
            command.arg(&word[..]);
        }
        command
    }

    /// Returns the position, in the commit, of the guard that has this number in the script. The script counts guards
    /// from one.
    pub(super) fn guard(&self, number: i64) -> Option<usize> {
        self.order.get(usize::try_from(number - 1).ok()?).copied()
    }

    /// Returns the position of a place's name among the keys, counted from one. Adds the name if necessary.
    fn key(&mut self, place: Place) -> u8 {
        let at = self.keys.iter().position(|(known, _)| *known == place).unwrap_or_else(|| {
            let name = self.names.place(self.space, place);
            self.keys.push((place, name));
            self.keys.len() - 1
        });
        u8::try_from(at + 1).unwrap_or(u8::MAX)
    }

    fn count(&mut self, count: usize) {
        self.plan.extend(u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes());
    }

    /// Adds the guards, grouped by set.
    fn guards(&mut self, guards: &'a [Guard]) {
        let mut order: Vec<usize> = (0..guards.len()).collect();
        order.sort_by_key(|place| guards[*place].name.set);
        let sets = order.chunk_by(|a, b| guards[*a].name.set == guards[*b].name.set);
        let reads: Vec<_> = sets.flat_map(|places| places.chunks(MOST_WORDS_OF_A_CALL)).collect();
        self.count(reads.len());
        for places in reads {
            let key = self.key(Place::Set(guards[places[0]].name.set));
            self.plan.push(key);
            self.count(places.len());
            for place in places {
                let Guard { name, seen } = &guards[*place];
                self.words.push(Cow::Borrowed(&name.key));
                self.seen.extend(seen.map_or([0; Revision::SIZE], |seen| seen.0));
            }
        }
        self.order = order;
    }

    fn call(&mut self, command: ScriptCommand, place: Place, words: Words<'a>) {
        let key = self.key(place);
        self.plan.extend([command as u8, key]);
        self.count(words.len());
        self.words.extend(words);
    }

    /// Adds a command. If it is too long, splits it into several commands after even numbers of words.
    fn calls(&mut self, command: ScriptCommand, place: Place, mut words: Words<'a>) {
        while words.len() > MOST_WORDS_OF_A_CALL {
            let rest = words.split_off(MOST_WORDS_OF_A_CALL);
            self.call(command, place, words);
            words = rest;
        }
        self.call(command, place, words);
    }
}

type Words<'a> = Vec<Cow<'a, [u8]>>;

/// The commands of a commit by kind. There is one command of each kind for a name, except for appends.
#[derive(Default)]
struct CommandsByKind<'a> {
    appends: Vec<(Log, Words<'a>)>,
    removals: Vec<(Set, Words<'a>)>,
    puts: Vec<(Set, Words<'a>)>,
    drops: Vec<Set>,
    trims: Vec<(Log, Words<'a>)>,
    leaves: Vec<(Index, Words<'a>)>,
    entries: Vec<(Index, Words<'a>)>,
}

fn of<'c, 'a, T: PartialEq>(calls: &'c mut Vec<(T, Words<'a>)>, place: T) -> &'c mut Words<'a> {
    let at = calls.iter().position(|(known, _)| *known == place).unwrap_or_else(|| {
        calls.push((place, Vec::new()));
        calls.len() - 1
    });
    &mut calls[at].1
}

const fn borrowed(bytes: &[u8]) -> Cow<'_, [u8]> {
    Cow::Borrowed(bytes)
}

impl<'a> CommandsByKind<'a> {
    fn of(writes: &'a [Write]) -> Result<Self, Failure> {
        let mut calls = Self::default();
        for write in writes {
            match write {
                Write::Append { log, first, values, kept } => {
                    calls
                        .appends
                        .extend(appends(*first, values, *kept)?.into_iter().map(|words| (*log, words)));
                }
                Write::Trim { log, first } => {
                    let first = Cow::Owned(first.to_string().into_bytes());
                    calls.trims.push((*log, vec![borrowed(b"MINID"), borrowed(b"="), first]));
                }
                Write::Put(Name { set, key }, record) => {
                    of(&mut calls.puts, *set).extend([borrowed(key), borrowed(record.as_bytes())]);
                }
                Write::Remove(Name { set, key }) => of(&mut calls.removals, *set).push(borrowed(key)),
                Write::Drop(set) => calls.drops.push(*set),
                Write::Enter(index, entry) => {
                    of(&mut calls.entries, *index).extend([borrowed(b"0"), borrowed(entry)]);
                }
                Write::Leave(index, entry) => of(&mut calls.leaves, *index).push(borrowed(entry)),
            }
        }
        Ok(calls)
    }

    /// Adds the commands. Appends come first, because Redis refuses a number that is too low, and then nothing has been
    /// written yet. Removals come next, because they need no memory.
    fn write(self, arguments: &mut Arguments<'a>) {
        let Self { appends, removals, puts, drops, trims, leaves, entries } = self;
        for (log, words) in appends {
            arguments.call(ScriptCommand::Xadd, Place::Log(log), words);
        }
        for (set, words) in removals {
            arguments.calls(ScriptCommand::Hdel, Place::Set(set), words);
        }
        for set in drops {
            arguments.call(ScriptCommand::Unlink, Place::Set(set), Vec::new());
        }
        for (log, words) in trims {
            arguments.call(ScriptCommand::Xtrim, Place::Log(log), words);
        }
        for (index, words) in leaves {
            arguments.calls(ScriptCommand::Zrem, Place::Index(index), words);
        }
        for (set, words) in puts {
            arguments.calls(ScriptCommand::Hset, Place::Set(set), words);
        }
        for (index, words) in entries {
            arguments.calls(ScriptCommand::Zadd, Place::Index(index), words);
        }
    }
}

/// Returns the words of the commands that append values. Each command adds some of the values as one item of the
/// stream. The item has the number of its last value.
fn appends(first: u64, values: &[Vec<u8>], kept: u64) -> Result<Vec<Words<'_>>, Failure> {
    let refused = || {
        Failure::NotDone(format!("a log cannot continue with {} values from number {first}", values.len()))
    };
    if first == 0 || values.is_empty() || first.checked_add(values.len() as u64).is_none() {
        return Err(refused());
    }
    let (mut commands, mut end) = (Vec::new(), first);
    for values in values.chunks((MOST_WORDS_OF_A_CALL - WORDS_OF_AN_APPEND) / 2) {
        end += values.len() as u64;
        let last = end - 1;
        let lowest = last.saturating_sub(kept).to_string().into_bytes();
        let id = format!("{last}-0").into_bytes();
        let mut words = vec![borrowed(b"MINID"), borrowed(b"~"), Cow::Owned(lowest), Cow::Owned(id)];
        words.extend(values.iter().flat_map(|value| [borrowed(b"v"), borrowed(value)]));
        commands.push(words);
    }
    Ok(commands)
}
