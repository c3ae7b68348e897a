//! Browsers in which a member signed in before. Their attempts are counted separately, so that guesses by strangers
//! cannot lock a member out.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use shared::{clock::random_bytes, secret::same};

use crate::management::Management;

/// Length of a browser's random number in bytes.
const NUMBER: usize = 16;
/// Length of the member's digest in a mark's name, in bytes.
const NAME: usize = 8;

/// A mark for a browser in which a member signed in. It proves that the member did, but signs nobody in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownBrowser {
    /// Name of the cookie that holds the mark, different for each member.
    pub name: String,
    /// The browser's random number, and a digest that cannot be calculated without the pepper.
    pub mark: String,
}

impl Management {
    /// Marks a browser in which a member has just signed in. Keeps the browser's mark if it has one.
    pub(crate) fn know_browser(&self, account: &str, name: &str, known: &[String]) -> KnownBrowser {
        let mark = self.known_mark(account, name, known).cloned().unwrap_or_else(|| {
            self.mark_of_browser(account, name, &URL_SAFE_NO_PAD.encode(random_bytes::<NUMBER>(&*self.clock)))
        });
        let of_member = self.credentials.keyed_digest(format!("member of a browser\0{account}\0{name}"));
        KnownBrowser { name: hex::encode(&of_member.as_bytes()[..NAME]), mark }
    }

    /// Finds the mark of this member among the marks of a browser.
    pub(crate) fn known_mark<'a>(
        &self,
        account: &str,
        name: &str,
        known: &'a [String],
    ) -> Option<&'a String> {
        known.iter().find(|mark| {
            let Some((number, _)) = mark.split_once('.') else { return false };
            number.len() == NUMBER.div_ceil(3) * 4 - 2
                && same(&self.mark_of_browser(account, name, number), mark)
        })
    }

    fn mark_of_browser(&self, account: &str, name: &str, number: &str) -> String {
        let digest = self.credentials.keyed_digest(format!("known browser\0{number}\0{account}\0{name}"));
        format!("{number}.{}", URL_SAFE_NO_PAD.encode(digest.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Office;

    #[test]
    fn a_mark_is_of_one_member_and_cannot_be_made_up() {
        let office = Office::open();
        let desk = &office.management;
        let ann = desk.know_browser("acme", "ann", &[]);
        let known = vec!["x".to_owned(), ".".to_owned(), ann.mark.clone()];
        assert_eq!(desk.known_mark("acme", "ann", &known), Some(&ann.mark));
        assert_eq!(desk.know_browser("acme", "ann", &known), ann, "the same browser keeps its mark");
        for (account, name) in [("acme", "bob"), ("other", "ann"), ("acme\0ann", "")] {
            assert_eq!(desk.known_mark(account, name, &known), None, "{account} {name}");
        }
        let bob = desk.know_browser("acme", "bob", &known);
        assert!(bob.name != ann.name && bob.mark != ann.mark, "a browser may know several members");
        let (number, proof) = ann.mark.split_once('.').unwrap();
        let (_, other) = bob.mark.split_once('.').unwrap();
        for forged in [format!("{number}.{other}"), format!("{number}A.{proof}"), format!("{number}.")] {
            assert_eq!(desk.known_mark("acme", "ann", &[forged]), None);
        }
    }
}
