//! Stop strings. An answer ends before the first, and shows no part of it.

/// Search for stop strings. The possible beginning of a stop string is held back.
pub(crate) struct StopStrings {
    strings: Vec<String>,
    held: String,
    hit: bool,
}

impl StopStrings {
    /// Searches for `strings`, of which none is empty.
    pub(crate) fn new(strings: Vec<String>) -> Self {
        Self { strings, held: String::new(), hit: false }
    }

    /// Adds text and returns the text that is certainly shown.
    pub(crate) fn push(&mut self, text: &str) -> String {
        if self.hit {
            return String::new();
        }
        self.held.push_str(text);
        if let Some(shown) = self.first_stop() {
            self.hit = true;
            self.held.truncate(shown);
            return std::mem::take(&mut self.held);
        }
        let certain = self.certain();
        let held = self.held.split_off(certain);
        std::mem::replace(&mut self.held, held)
    }

    /// Returns whether a stop string was found.
    pub(crate) fn is_hit(&self) -> bool {
        self.hit
    }

    /// Returns the text held back, as the text ends.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Place of the stop string that is complete first, which is the same however the text is cut.
    fn first_stop(&self) -> Option<usize> {
        let found = self.strings.iter().filter_map(|stop| Some((self.held.find(stop)?, stop.len())));
        found.min_by_key(|(start, length)| (start + length, *start)).map(|(start, _)| start)
    }

    /// Count of the bytes that cannot belong to a stop string any more.
    fn certain(&self) -> usize {
        let begins_stop =
            |start: &usize| self.strings.iter().any(|stop| stop.starts_with(&self.held[*start..]));
        let starts = self.held.char_indices().map(|(start, _)| start);
        starts.into_iter().find(begins_stop).unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text that is shown of `text`, pushed in pieces of `size` characters.
    fn shown(text: &str, stops: &[&str], size: usize) -> String {
        let mut search = StopStrings::new(stops.iter().map(|&stop| stop.to_owned()).collect());
        let characters: Vec<char> = text.chars().collect();
        let mut shown: String =
            characters.chunks(size).map(|piece| search.push(&piece.iter().collect::<String>())).collect();
        shown.push_str(&search.finish());
        shown
    }

    #[test]
    fn the_pieces_do_not_matter() {
        for size in 1..8 {
            assert_eq!(shown("aaab", &["aab"], size), "a");
            assert_eq!(shown("abc", &["abc", "b"], size), "a");
            assert_eq!(shown("one, two", &["two!", "zwei"], size), "one, two");
            assert_eq!(shown("größe ö", &["ße"], size), "grö");
        }
    }

    #[test]
    fn only_what_may_become_a_stop_string_is_held_back() {
        let mut stops = StopStrings::new(vec!["stop".to_owned()]);
        assert_eq!(stops.push("a st"), "a ");
        assert_eq!(stops.push("art s"), "start ");
        assert_eq!(stops.finish(), "s");
    }
}
