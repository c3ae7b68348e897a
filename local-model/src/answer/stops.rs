//! Stop strings: an answer ends before the first of them, and no part of it is ever shown.

/// Watches text for stop strings and holds back what may be the beginning of one.
pub(crate) struct Stops {
    watched: Vec<String>,
    held: String,
    hit: bool,
}

impl Stops {
    /// The strings to watch for; none is empty.
    pub(crate) fn new(watched: Vec<String>) -> Self {
        Self { watched, held: String::new(), hit: false }
    }

    /// Adds text and returns what is certainly shown.
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

    /// Whether a stop string was seen.
    pub(crate) fn is_hit(&self) -> bool {
        self.hit
    }

    /// What was held back in vain, as the text ends here.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Where the stop string begins that is complete first. So it does not matter in what pieces the text comes.
    fn first_stop(&self) -> Option<usize> {
        let found = self.watched.iter().filter_map(|stop| Some((self.held.find(stop)?, stop.len())));
        found.min_by_key(|(start, length)| (start + length, *start)).map(|(start, _)| start)
    }

    /// So many bytes cannot belong to a stop string any more.
    fn certain(&self) -> usize {
        let begins_stop =
            |start: &usize| self.watched.iter().any(|stop| stop.starts_with(&self.held[*start..]));
        let starts = self.held.char_indices().map(|(start, _)| start);
        starts.into_iter().find(begins_stop).unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of `text`, pushed in pieces of so many characters.
    fn shown(text: &str, stops: &[&str], size: usize) -> String {
        let mut watch = Stops::new(stops.iter().map(|&stop| stop.to_owned()).collect());
        let characters: Vec<char> = text.chars().collect();
        let mut shown: String =
            characters.chunks(size).map(|piece| watch.push(&piece.iter().collect::<String>())).collect();
        shown.push_str(&watch.finish());
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
        let mut watch = Stops::new(vec!["stop".to_owned()]);
        assert_eq!(watch.push("a st"), "a ");
        assert_eq!(watch.push("art s"), "start ");
        assert_eq!(watch.finish(), "s");
    }
}
