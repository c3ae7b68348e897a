//! Checks that the suite notices a backend which writes half of a commit and then fails, as Redis does when a script
//! fails after its first write.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::task::JoinError;

use super::{Subject, large};
use crate::{
    maps::Maps,
    records::{Answer, Commit, Committed, Failure, Place, Question, Records, Space},
};

/// Maps that write only half of a large commit and then fail.
#[derive(Default)]
struct Halves {
    maps: Maps,
    /// Whether the failure is hidden from the caller.
    is_silent: bool,
}

#[async_trait]
impl Records for Halves {
    fn system(&self) -> &'static str {
        "halves"
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        self.maps.read(space, questions).await
    }

    async fn commit(&self, space: &Space, mut commit: Commit) -> Result<Committed, Failure> {
        let half = commit.writes.len() / 2;
        let is_large = commit.words() > self.most_words();
        if is_large {
            commit.writes.truncate(half);
        }
        let committed = self.maps.commit(space, commit).await?;
        match committed {
            Committed::Written if is_large && !self.is_silent => {
                Err(Failure::Unknown("too many results to unpack".into()))
            }
            Committed::Written | Committed::Conflict(_) => Ok(committed),
        }
    }

    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure> {
        self.maps.places().await
    }
}

#[tokio::test]
async fn a_backend_that_writes_half_of_a_commit_does_not_pass() {
    for is_silent in [false, true] {
        let subject = Subject::over(Arc::new(Halves { is_silent, ..Halves::default() }), None);
        let case = async move { large::a_commit_of_ten_thousand_entries_takes_effect_whole(&subject).await };
        let passed: Result<(), JoinError> = tokio::spawn(case).await;
        assert!(passed.is_err_and(|e| e.is_panic()), "{is_silent}");
    }
}
