//! Fuzz targets that are tests: examples of a format, edited at random.
//!
//! Random bytes hardly get past the first character of a JSON parser. So a target is given examples of its format, and
//! `bolero` chooses which example is edited and how. A failure prints the input.
//!
//! A test makes the same edits in each run, so that a change fails by what it does and never by chance. `make fuzz`
//! edits at random; its failures print a seed that repeats them.

use std::{
    borrow::Cow,
    fmt, fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use bolero::{
    Driver, ValueGenerator,
    generator::bolero_generator::driver::{Options, Rng},
};
use rand::{SeedableRng, rngs::StdRng};

mod edit;

#[doc(hidden)]
pub use bolero;
use edit::Edit;

/// Most edits of an example. More leave little that a parser reads beyond its beginning.
const MOST_EDITS: usize = 5;
/// Most places at which an input is cut into pieces.
const MOST_CUTS: usize = 6;

/// How long a test edits examples.
const TIME_OF_A_TEST: Duration = Duration::from_secs(1);

/// Checks every example as it is, then edited ones: for a second, the same in each run, or at random for as long as
/// `BOLERO_RANDOM_TEST_TIME_MS` says.
#[macro_export]
macro_rules! fuzz {
    ($examples:expr, $check:expr) => {{
        let (examples, check) = ($examples, $check);
        examples.each(&check);
        if ::std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("BOLERO_")) {
            $crate::bolero::check!().with_generator(examples).for_each(check);
        } else {
            examples.each_edited(check);
        }
    }};
}

/// Examples of a format, which are checked unchanged and edited at random.
pub struct Examples(Vec<Vec<u8>>);

impl Examples {
    pub fn of<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self(texts.into_iter().map(|text| text.as_ref().to_vec()).collect())
    }

    /// Reads the files of a folder of the corpus, sorted by name.
    pub fn folder(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        Self(files.iter().filter_map(|file| fs::read(file).ok()).collect())
    }

    /// Adds more examples.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Passes each example to `check`, whole and cut in half.
    pub fn each(&self, check: impl Fn(&Input)) {
        assert!(!self.0.is_empty(), "there is nothing to edit");
        for bytes in &self.0 {
            check(&Input { bytes: bytes.clone(), choices: Vec::new() });
            check(&Input { bytes: bytes.clone(), choices: vec![bytes.len() / 2] });
        }
    }

    /// Passes edited examples to `check` for a second, in the same order in each run.
    pub fn each_edited(&self, check: impl Fn(&Input)) {
        let (mut random, options) = (StdRng::seed_from_u64(0), Options::default());
        let end = Instant::now() + TIME_OF_A_TEST;
        while Instant::now() < end {
            let Some(input) = self.generate(&mut Rng::new(&mut random, &options)) else { continue };
            let shown = ShownAtPanic(&input);
            check(shown.0);
        }
    }
}

/// Prints the input if its check panics.
struct ShownAtPanic<'a>(&'a Input);

impl Drop for ShownAtPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("input: {:?}", self.0);
        }
    }
}

impl ValueGenerator for Examples {
    type Output = Input;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Input> {
        let mut bytes = self.0[driver.produce::<usize>()? % self.0.len()].clone();
        for _ in 0..usize::from(driver.produce::<u8>()?) % (MOST_EDITS + 1) {
            driver.produce::<Edit>()?.apply(&mut bytes, &self.0);
        }
        let mut choices = Vec::new();
        for _ in 0..usize::from(driver.produce::<u8>()?) % (MOST_CUTS + 1) {
            choices.push(usize::from(driver.produce::<u16>()?));
        }
        Some(Input { bytes, choices })
    }
}

/// An edited example, with random choices for the target.
pub struct Input {
    bytes: Vec<u8>,
    choices: Vec<usize>,
}

impl Input {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the edited example as text, with replacement characters for bytes that are not UTF-8.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Returns the edited example in pieces, cut at random places. Some may be empty.
    pub fn pieces(&self) -> Vec<&[u8]> {
        let mut cuts: Vec<usize> = self.choices.iter().map(|cut| cut % (self.bytes.len() + 1)).collect();
        cuts.extend([0, self.bytes.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|cut| &self.bytes[cut[0]..cut[1]]).collect()
    }

    /// Returns a number below `options`, or zero.
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
        fuzz!(Examples::of([r#"{"a":[1,"b"]}"#, ""]), |input: &Input| {
            assert_eq!(input.pieces().concat(), input.bytes());
            assert!(input.choice(3) < 3);
        });
    }
}
