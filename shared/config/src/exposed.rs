//! Secrets that were passed as flags. Every user of the machine can read them in the list of processes.

use std::ffi::{OsStr, OsString};

use clap::{ArgMatches, Command, Parser, parser::ValueSource};

/// Names of the flags that carried a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExposedSecrets(Vec<String>);

/// Reads a program's settings from its command line and its environment. If a setting is invalid, the program ends.
pub fn parse<A: Parser>() -> (A, ExposedSecrets) {
    parse_from(std::env::args_os()).unwrap_or_else(|e| e.exit())
}

fn parse_from<A: Parser>(
    words: impl IntoIterator<Item = OsString>,
) -> Result<(A, ExposedSecrets), clap::Error> {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = without_empty(A::command(), &is_empty);
    let matches = command.clone().try_get_matches_from(words)?;
    let exposed = ExposedSecrets::of(&command, &matches);
    Ok((A::from_arg_matches(&matches)?, exposed))
}

/// Treats an environment variable that is set but empty as unset, because templates for deployments often produce such
/// variables.
fn without_empty(command: Command, is_empty: &dyn Fn(&OsStr) -> bool) -> Command {
    let command = command.mut_args(|argument| {
        let has_nothing = argument.get_env().is_some_and(is_empty);
        if has_nothing { argument.env(None::<&'static str>) } else { argument }
    });
    command.mut_subcommands(|subcommand| without_empty(subcommand, is_empty))
}

impl ExposedSecrets {
    /// Collects the flags that carry a secret. A flag's value is a secret if `--help` hides it, unless it is a URL
    /// without credentials.
    fn of(command: &Command, matches: &ArgMatches) -> Self {
        let secrets = command.get_arguments().filter(|argument| argument.is_hide_env_values_set());
        let given = secrets.filter(|argument| {
            let id = argument.get_id().as_str();
            let words = matches.get_raw(id).into_iter().flatten();
            let secret = words.map(|word| word.to_string_lossy()).any(|word| !is_plain_address(&word));
            matches.value_source(id) == Some(ValueSource::CommandLine) && secret
        });
        Self(given.filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect())
    }

    /// Logs a warning for each exposed secret.
    pub fn warn(&self) {
        for flag in &self.0 {
            tracing::warn!(
                flag,
                "a secret was given as a flag, which `ps` shows to every user of the machine; use its environment \
                 variable or a file instead"
            );
        }
    }
}

fn is_plain_address(text: &str) -> bool {
    !text.contains('@')
        && (text.contains("://") || text.starts_with("sqlite:") || text.starts_with("memory:"))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};
    use shared::secret::SecretString;

    use super::*;
    use crate::parse_secret;

    #[derive(Parser)]
    struct Arguments {
        #[arg(long, hide_env_values = true, value_parser = parse_secret)]
        token: Option<SecretString>,
        #[arg(long, hide_env_values = true, value_parser = parse_secret, default_value = "none")]
        store: SecretString,
        #[arg(long, env = "FAREGATE_TEST_FILE", default_value = "kept")]
        file: String,
    }

    #[test]
    fn a_variable_that_is_empty_is_as_one_that_is_not_set() {
        let names = |is_empty: bool| {
            let command = without_empty(Arguments::command(), &|_| is_empty);
            command.get_arguments().filter(|argument| argument.get_env().is_some()).count()
        };
        assert_eq!((names(false), names(true)), (1, 0));
        let command = without_empty(Arguments::command(), &|_| true);
        let matches = command.try_get_matches_from(["program"]).unwrap();
        assert_eq!(Arguments::from_arg_matches(&matches).unwrap().file, "kept");
    }

    #[test]
    fn a_secret_on_the_command_line_is_noticed_and_nothing_else() {
        let exposed = |words: &[&str]| {
            let words = ["program"].iter().chain(words).map(OsString::from);
            let (arguments, exposed) = parse_from::<Arguments>(words).unwrap();
            drop((arguments.token, arguments.store, arguments.file));
            exposed.0
        };
        assert_eq!(exposed(&[]), [""; 0]);
        assert_eq!(exposed(&["--file", "x@y"]), [""; 0]);
        assert_eq!(exposed(&["--token", "x"]), ["--token"]);
        assert_eq!(exposed(&["--token=x", "--store=redis://u:p@h"]), ["--token", "--store"]);
        for plain in ["redis://h:1", "sqlite:a/b", "memory:"] {
            assert_eq!(exposed(&["--store", plain]), [""; 0]);
        }
    }
}
