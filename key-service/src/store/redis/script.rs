//! Scripts that run inside Redis, and their arguments.

use std::borrow::Cow;

use redis::{Cmd, Script, cmd};

/// A script. A server that has received the text identifies a script by its hash.
pub(in crate::store) struct Lua {
    text: Cow<'static, str>,
    hash: String,
}

impl Lua {
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self { hash: Script::new(&text).get_hash().to_owned(), text }
    }

    /// Command for a server that has the script.
    pub(super) fn by_hash(&self, arguments: &Arguments) -> Cmd {
        arguments.command("EVALSHA", &self.hash)
    }

    /// Builds the command for a server that does not have the script yet.
    pub(super) fn by_text(&self, arguments: &Arguments) -> Cmd {
        arguments.command("EVAL", &self.text)
    }
}

/// Arguments of a script.
#[derive(Default)]
pub(super) struct Arguments {
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
}

impl Arguments {
    /// Takes the names that the script reads and writes, all in the same slot.
    pub(super) fn keys<const N: usize>(names: [String; N]) -> Self {
        Self { keys: names.into_iter().map(String::into_bytes).collect(), values: Vec::new() }
    }

    /// Adds a name. Returns the name's index, counted from 1.
    pub(super) fn key(&mut self, name: String) -> usize {
        self.keys.push(name.into_bytes());
        self.keys.len()
    }

    /// Adds a value.
    pub(super) fn value(&mut self, value: impl Into<Vec<u8>>) {
        self.values.push(value.into());
    }

    /// Adds a value, and returns the arguments.
    pub(super) fn with(mut self, value: impl Into<Vec<u8>>) -> Self {
        self.value(value);
        self
    }

    /// Adds values, and returns the arguments.
    pub(super) fn with_all(mut self, values: Vec<String>) -> Self {
        self.values.extend(values.into_iter().map(String::into_bytes));
        self
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.values);
        command
    }
}

/// Commands that run together (`scripts/transaction.lua`), all in the same slot.
pub(super) struct Transaction {
    arguments: Arguments,
}

impl Transaction {
    pub(super) fn new() -> Self {
        Self { arguments: Arguments::default().with("always") }
    }

    /// Makes a transaction that runs only if the name exists.
    pub(super) fn if_exists(name: String) -> Self {
        Self { arguments: Arguments::keys([name]).with("exists") }
    }

    /// Adds a command, whose second word is a name.
    pub(super) fn command(&mut self, words: &[impl AsRef<[u8]>]) {
        let Self { arguments } = self;
        arguments.keys.extend(words.get(1).map(|name| name.as_ref().to_vec()));
        arguments.value(words.len().to_string());
        arguments.values.extend(words.iter().map(|word| word.as_ref().to_vec()));
    }

    /// Adds a command that sets fields of a hash, whose names and values come in turn.
    pub(super) fn set(&mut self, name: &str, fields: &[String]) {
        let words = ["HSET", name].into_iter().chain(fields.iter().map(String::as_str));
        self.command(&words.collect::<Vec<_>>());
    }

    pub(super) fn arguments(self) -> Arguments {
        self.arguments
    }
}

/// All scripts.
pub(super) struct Scripts {
    pub(super) ledger: Lua,
    pub(super) create_account: Lua,
    pub(super) list_account: Lua,
    pub(super) create_key: Lua,
    pub(super) update_key: Lua,
    pub(super) expire_keys: Lua,
    pub(super) list_keys: Lua,
    pub(super) revoke_management_key: Lua,
    pub(super) create_listed: Lua,
    pub(super) remove_member: Lua,
    pub(super) transaction: Lua,
    pub(super) find_record: Lua,
    pub(super) count_attempt: Lua,
    pub(super) audit: Lua,
}

/// Joins the parts of a script.
macro_rules! parts {
    ($($part:literal),+ $(,)?) => { concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+) };
}

/// Script of the rules about money, made of parts in their order.
pub(in crate::store) const LEDGER: &str =
    parts!("key", "ledger/arguments", "ledger/load", "ledger/funds", "ledger/commands", "ledger/write",);

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            ledger: Lua::new(LEDGER),
            create_account: Lua::new(parts!("create_account")),
            list_account: Lua::new(parts!("list_account")),
            create_key: Lua::new(parts!("key", "key_lists", "create_key")),
            update_key: Lua::new(parts!("key", "key_lists", "update_key")),
            expire_keys: Lua::new(parts!("expire_keys")),
            list_keys: Lua::new(parts!("key", "key_lists", "list_keys")),
            revoke_management_key: Lua::new(parts!("revoke_management_key")),
            create_listed: Lua::new(parts!("create_listed")),
            remove_member: Lua::new(parts!("remove_member")),
            transaction: Lua::new(parts!("transaction")),
            find_record: Lua::new(parts!("find_record")),
            count_attempt: Lua::new(parts!("count_attempt")),
            audit: Lua::new(parts!("audit")),
        }
    }
}
