//! Scripts that run inside Redis, and their arguments.

use std::{borrow::Cow, collections::HashMap};

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
    pub(super) ledger: LedgerScripts,
    pub(super) create_account: Lua,
    pub(super) list_account: Lua,
    pub(super) create_key: Lua,
    pub(super) import_keys: Lua,
    pub(super) update_key: Lua,
    pub(super) rotate_key: Lua,
    pub(super) expire_keys: Lua,
    pub(super) list_keys: Lua,
    pub(super) key_names: Lua,
    pub(super) create_group: Lua,
    pub(super) update_group: Lua,
    pub(super) revoke_management_key: Lua,
    pub(super) use_management_key: Lua,
    pub(super) create_listed: Lua,
    pub(super) create_webhook: Lua,
    pub(super) remove_member: Lua,
    pub(super) replace_second_factor: Lua,
    pub(super) begin_session: Lua,
    pub(super) replace: Lua,
    pub(super) transaction: Lua,
    pub(super) find_record: Lua,
    pub(super) count_attempt: Lua,
    pub(super) audit: Lua,
    pub(super) change_webhook: Lua,
    pub(super) claim_deliveries: Lua,
    pub(super) finish_delivery: Lua,
    pub(super) find_events: Lua,
}

/// Joins the parts of a script. Parts in brackets are left out where nothing uses chains of budgets.
macro_rules! parts {
    ($($part:tt),+ $(,)?) => { concat!($(parts!(@ $part)),+) };
    (@ [$($part:literal),+]) => { concat!("-- chain {\n", $(parts!(@ $part),)+ "-- chain }\n") };
    (@ $part:literal) => { include_str!(concat!("scripts/", $part, ".lua")) };
}

/// Makes a script of its parts.
macro_rules! script {
    ($($part:literal),+) => { Lua::new(assembled(parts!($($part),+), true)) };
}

/// Makes a script that writes the events of an act.
macro_rules! act_script {
    ($($part:literal),+) => { script!("constants", "act_arguments", "event_index", "events", "act", $($part),+) };
}

/// Script of the rules about money, made of parts in their order.
pub(in crate::store) const LEDGER: &str = parts!(
    "constants",
    "key",
    ["budgets"],
    "ledger/arguments",
    ["ledger/payer"],
    "ledger/load",
    ["ledger/chain"],
    "ledger/funds",
    "ledger/thresholds",
    "ledger/commands",
    "ledger/passed",
    "event_index",
    "events",
    ["ledger/margins"],
    "ledger/write",
);

/// Script that makes keys of another gateway.
pub(in crate::store) const IMPORT: &str =
    parts!("constants", "act_arguments", "event_index", "events", "act", "key", "key_lists", "import_keys");

/// The script of imports, of this text.
pub(super) fn import(text: &str) -> Lua {
    Lua::new(assembled(text, true))
}

/// A line of the ledger's script for batches without, or with chains of budgets.
const PLAIN: &str = " -- plain";
const CHAIN: &str = " -- chain";

/// The ledger's script for accounts without groups and bounds, and for the others.
pub(super) struct LedgerScripts {
    pub(super) plain: Lua,
    pub(super) chains: Lua,
}

impl LedgerScripts {
    /// Makes both scripts of the same text.
    pub(super) fn new(text: &str) -> Self {
        Self { plain: Lua::new(assembled(text, false)), chains: Lua::new(assembled(text, true)) }
    }
}

/// Makes a script of its parts: without the lines of the other kind, and with constants in place of their names.
fn assembled(text: &str, has_chains: bool) -> String {
    let other = if has_chains { PLAIN } else { CHAIN };
    let (mut constants, mut script, mut is_left_out) = (HashMap::new(), String::new(), false);
    for line in text.lines() {
        match line {
            "-- chain {" => is_left_out = !has_chains,
            "-- chain }" => is_left_out = false,
            _ if is_left_out || line.ends_with(other) || line.trim_start().starts_with("--") => {}
            _ => {
                let line = line.trim_end_matches(PLAIN).trim_end_matches(CHAIN);
                if let Some((name, value)) = constant(line) {
                    constants.insert(name, value);
                } else {
                    write_line(&mut script, line, &constants);
                }
            }
        }
    }
    script
}

/// Name and value of a constant: `local NAME = value`, the value without blanks.
fn constant(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix("local ")?.split_once(" = ")?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    (is_name && !value.contains(' ')).then_some((name, value))
}

/// Writes a line with the values of constants in place of their names. Texts stay as they are.
fn write_line(script: &mut String, line: &str, constants: &HashMap<&str, &str>) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (n, part) in line.split('\'').enumerate() {
        if n > 0 {
            script.push('\'');
        }
        let mut rest = part;
        while let Some(start) = rest.find(is_word).filter(|_| n % 2 == 0) {
            let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |length| start + length);
            script.push_str(&rest[..start]);
            script.push_str(constants.get(&rest[start..end]).copied().unwrap_or(&rest[start..end]));
            rest = &rest[end..];
        }
        script.push_str(rest);
    }
    script.push('\n');
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            ledger: LedgerScripts::new(LEDGER),
            create_account: script!("create_account"),
            list_account: script!("list_account"),
            create_key: act_script!("key", "idempotency", "key_lists", "create_key"),
            import_keys: import(IMPORT),
            update_key: act_script!("key", "budgets", "new_bounds", "key_lists", "update_key"),
            rotate_key: act_script!("key", "budgets", "idempotency", "rotate_key"),
            expire_keys: script!("expire_keys"),
            list_keys: script!("constants", "key", "key_lists", "list_keys"),
            key_names: script!("key_names"),
            create_group: act_script!("key", "idempotency", "create_group"),
            update_group: act_script!("key", "budgets", "new_bounds", "update_group"),
            revoke_management_key: act_script!("revoke_management_key"),
            use_management_key: script!("use_management_key"),
            create_listed: act_script!("create_listed"),
            create_webhook: script!("constants", "key", "idempotency", "create_webhook"),
            remove_member: act_script!("remove_member"),
            replace_second_factor: act_script!("replace_second_factor"),
            begin_session: act_script!("begin_session"),
            replace: script!("replace"),
            transaction: script!("transaction"),
            find_record: script!("find_record"),
            count_attempt: script!("count_attempt"),
            audit: script!("audit"),
            change_webhook: act_script!("change_webhook"),
            claim_deliveries: script!("claim_deliveries"),
            finish_delivery: script!("finish_delivery"),
            find_events: script!("event_index", "find_events"),
        }
    }
}
