//! Calls among the blocks or items of an answer, which clients of chat count separately.

use raw_json::RawString;

use crate::{
    nonsense::Nonsense,
    pieces::parts::{Delta, MAX_CALLS},
};

/// Arguments of a call that has none.
const NO_ARGUMENTS: RawString<'_> = RawString::trusted(r#""{}""#);

/// The calls of an answer so far, in order.
#[derive(Default)]
pub(super) struct CallPlaces(Vec<CallPlace>);

struct CallPlace {
    /// Place of the call among all blocks or items.
    index: u64,
    has_arguments: bool,
}

impl CallPlaces {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins the call at this index, unless it has begun.
    pub(super) fn begin<'a>(
        &mut self,
        index: u64,
        name: [Option<RawString<'a>>; 2],
    ) -> Result<Delta<'a>, Nonsense> {
        let place = self.place(index).unwrap_or(self.0.len());
        if place == MAX_CALLS {
            return Err(Nonsense::Beyond);
        }
        if place == self.0.len() {
            self.0.push(CallPlace { index, has_arguments: false });
        }
        Ok(Delta::of_call(place as u64, name, RawString::EMPTY))
    }

    /// Adds to the arguments of a call. Any other block or item at this index has none that are shown.
    pub(super) fn add<'a>(&mut self, index: u64, arguments: RawString<'a>) -> Option<Delta<'a>> {
        let place = self.place(index)?;
        self.0[place].has_arguments |= !arguments.is_empty();
        Some(Delta::of_call(place as u64, [None, None], arguments))
    }

    /// Ends the call at this index. `whole` are the arguments told at the end. Servers that send no pieces, and calls
    /// without arguments, have them only there.
    pub(super) fn end<'a>(&self, index: u64, whole: Option<RawString<'a>>) -> Option<Delta<'a>> {
        let place = self.place(index).filter(|place| !self.0[*place].has_arguments)?;
        let whole = whole.filter(|whole| !whole.is_empty());
        Some(Delta::of_call(place as u64, [None, None], whole.unwrap_or(NO_ARGUMENTS)))
    }

    fn place(&self, index: u64) -> Option<usize> {
        self.0.iter().rposition(|call| call.index == index)
    }
}
