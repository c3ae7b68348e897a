//! Fuzz targets that run as tests. Each checks examples of a format, edited at random.
//!
//! With random bytes, a JSON parser hardly gets past the first character. So each target gets examples of its format,
//! edited at random. A failure prints the input.
//!
//! A test makes edits for one second. Each run makes the same edits in the same order; a faster machine only makes more
//! of them. `make fuzz` makes other edits each time. If one of them fails, it prints a seed that repeats the edits.

use std::{
    borrow::Cow,
    env, fmt, fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng};

mod edit;

use edit::Edit;

/// Maximum number of edits to an example. With more edits, a parser would hardly get past the beginning.
const MOST_EDITS: usize = 5;
/// Maximum number of cuts that divide an input into pieces.
const MOST_CUTS: usize = 6;

/// How long a test edits examples.
const TIME_OF_A_TEST: Duration = Duration::from_secs(1);
/// Environment variable with a number of seconds. If it is set, examples are edited at random for this long. `make
/// fuzz` sets it, together with the first seed.
const SECONDS: &str = "FUZZ_SECONDS";
const SEED: &str = "FUZZ_SEED";

/// Checks every example as it is, and then edited examples: for `FUZZ_SECONDS` with random edits or, if that is not
/// set, for one second with the same edits in every run.
pub fn fuzz(examples: &Examples, check: impl Fn(&Input)) {
    let number = |name: &str| {
        let parse =
            |value: String| value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number"));
        env::var(name).ok().map(parse)
    };
    let (time, first) = match number(SECONDS) {
        Some(seconds) => (Duration::from_secs(seconds), number(SEED).unwrap_or_else(rand::random)),
        None => (TIME_OF_A_TEST, number(SEED).unwrap_or_default()),
    };
    examples.each(&check);
    let end = Instant::now() + time;
    for seed in (0..).map(|count| first.wrapping_add(count)).take_while(|_| Instant::now() < end) {
        let shown = ShownAtPanic { input: &examples.edited(seed), seed };
        check(shown.input);
    }
}

/// Examples of a format. Each is checked as it is, and again after edits.
pub struct Examples(Vec<Vec<u8>>);

impl Examples {
    pub fn of<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self(texts.into_iter().map(|text| text.as_ref().to_vec()).collect())
    }

    /// Reads the examples from the files in a folder of the corpus, sorted by name.
    pub fn folder(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        Self(files.iter().filter_map(|file| fs::read(file).ok()).collect())
    }

    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Passes each example to `check` twice: as one piece, and split in the middle.
    pub fn each(&self, check: impl Fn(&Input)) {
        assert!(!self.0.is_empty(), "there is nothing to edit");
        for bytes in &self.0 {
            check(&Input { bytes: bytes.clone(), choices: Vec::new() });
            check(&Input { bytes: bytes.clone(), choices: vec![bytes.len() / 2] });
        }
    }

    /// Edits an example. The same seed always makes the same edits.
    fn edited(&self, seed: u64) -> Input {
        let random = &mut StdRng::seed_from_u64(seed);
        let mut bytes = self.0[random.random_range(0..self.0.len())].clone();
        for _ in 0..random.random_range(0..=MOST_EDITS) {
            Edit::random(random).apply(&mut bytes, &self.0);
        }
        let choices = (0..random.random_range(0..=MOST_CUTS)).map(|_| random.random::<u16>().into());
        Input { choices: choices.collect(), bytes }
    }
}

/// Prints the input and the seed that made it, if the check of the input panics.
struct ShownAtPanic<'a> {
    input: &'a Input,
    seed: u64,
}

impl Drop for ShownAtPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("input: {:?}; {SEED}={} makes it first", self.input, self.seed);
        }
    }
}

/// An edited example, and random choices that the target may make.
pub struct Input {
    bytes: Vec<u8>,
    choices: Vec<usize>,
}

impl Input {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the edited example as text. Bytes that are not UTF-8 become replacement characters.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Returns the edited example cut at random places. Some pieces may be empty.
    pub fn pieces(&self) -> Vec<&[u8]> {
        let mut cuts: Vec<usize> = self.choices.iter().map(|cut| cut % (self.bytes.len() + 1)).collect();
        cuts.extend([0, self.bytes.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|cut| &self.bytes[cut[0]..cut[1]]).collect()
    }

    /// Returns a random number below `options`; zero if `options` is zero or the input has no random choices.
    pub fn choice(&self, options: usize) -> usize {
        self.choices.first().map_or(0, |choice| choice % options.max(1))
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, choices {:?}", self.text(), self.choices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_up_the_whole() {
        fuzz(&Examples::of([r#"{"a":[1,"b"]}"#, ""]), |input: &Input| {
            assert_eq!(input.pieces().concat(), input.bytes());
            assert!(input.choice(3) < 3);
        });
    }
}
