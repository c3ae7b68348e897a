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

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.values);
        command
    }
}

/// All scripts.
pub(super) struct Scripts {
    pub(super) ledger: Lua,
    pub(super) create_account: Lua,
    pub(super) list_account: Lua,
    pub(super) create_key: Lua,
    pub(super) update_key: Lua,
    pub(super) create_management_key: Lua,
    pub(super) revoke_key: Lua,
    pub(super) expire_keys: Lua,
    pub(super) list_keys: Lua,
    pub(super) revoke_management_key: Lua,
    pub(super) create_member: Lua,
    pub(super) update_member: Lua,
    pub(super) remove_member: Lua,
    pub(super) put_record: Lua,
    pub(super) count_attempt: Lua,
    pub(super) take_attempt_back: Lua,
    pub(super) audit: Lua,
}

/// Script of the rules about money, made of parts in their order.
pub(in crate::store) const LEDGER: &str = concat!(
    include_str!("scripts/ledger/arguments.lua"),
    include_str!("scripts/ledger/load.lua"),
    include_str!("scripts/ledger/funds.lua"),
    include_str!("scripts/ledger/commands.lua"),
    include_str!("scripts/ledger/write.lua"),
);

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            ledger: Lua::new(LEDGER),
            create_account: Lua::new(include_str!("scripts/create_account.lua")),
            list_account: Lua::new(include_str!("scripts/list_account.lua")),
            create_key: Lua::new(include_str!("scripts/create_key.lua")),
            update_key: Lua::new(include_str!("scripts/update_key.lua")),
            create_management_key: Lua::new(include_str!("scripts/create_management_key.lua")),
            revoke_key: Lua::new(include_str!("scripts/revoke_key.lua")),
            expire_keys: Lua::new(include_str!("scripts/expire_keys.lua")),
            list_keys: Lua::new(include_str!("scripts/list_keys.lua")),
            revoke_management_key: Lua::new(include_str!("scripts/revoke_management_key.lua")),
            create_member: Lua::new(include_str!("scripts/create_member.lua")),
            update_member: Lua::new(include_str!("scripts/update_member.lua")),
            remove_member: Lua::new(include_str!("scripts/remove_member.lua")),
            put_record: Lua::new(include_str!("scripts/put_record.lua")),
            count_attempt: Lua::new(include_str!("scripts/count_attempt.lua")),
            take_attempt_back: Lua::new(include_str!("scripts/take_attempt_back.lua")),
            audit: Lua::new(include_str!("scripts/audit.lua")),
        }
    }
}
