//! Headers of an upstream's requests, its credential among them. Values from files may change while the gateway runs.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use shared::{
    catalog::{Access, Source},
    current::Current,
    process::{config::ConfigError, upstream_access::header_values},
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};

/// Longest time to read changed values, the wait for other readers included: the request waits meanwhile.
const REREAD_DEADLINE: Duration = Duration::from_secs(2);
/// Time between two log lines about a refused credential, since each request is refused alike.
const TELL_EVERY: Duration = Duration::from_mins(1);

/// Names and values of headers, in the order of the catalogue.
pub(super) type HeaderValues = Box<[(HeaderName, HeaderValue)]>;

/// The headers of an upstream's requests.
pub(super) struct UpstreamHeaders {
    access: Access,
    current: Current<HeaderValues>,
    /// Held while the files are read again.
    rereading: tokio::sync::Mutex<()>,
    /// Time of the last log line about a refusal.
    told: Mutex<Option<Instant>>,
}

impl UpstreamHeaders {
    /// Reads the values.
    pub(super) fn read(access: &Access) -> Result<Self, ConfigError> {
        let current = Current::new(header_values(access)?);
        let (rereading, told) = (tokio::sync::Mutex::default(), Mutex::default());
        Ok(Self { access: access.clone(), current, rereading, told })
    }

    pub(super) fn get(&self) -> Arc<HeaderValues> {
        self.current.get()
    }

    /// Returns other values than those that the upstream refused, if there are any by now: a credential with an hour's
    /// life is replaced in its file, and needs no reload.
    pub(super) async fn replacing(&self, refused: &HeaderValues) -> Option<Arc<HeaderValues>> {
        timeout(REREAD_DEADLINE, self.reread(refused)).await.ok().flatten()
    }

    async fn reread(&self, refused: &HeaderValues) -> Option<Arc<HeaderValues>> {
        if !self.access.headers.iter().any(|header| matches!(header.source, Source::File(_))) {
            return None;
        }
        let _turn = self.rereading.lock().await;
        let current = self.current.get();
        if *current != *refused {
            return Some(current);
        }
        let access = self.access.clone();
        match spawn_blocking(move || header_values(&access)).await.ok()? {
            Ok(read) if read == *refused => None,
            Ok(read) => {
                self.current.replace(read);
                Some(self.current.get())
            }
            Err(error) => {
                tracing::warn!(%error, "a credential cannot be read again");
                None
            }
        }
    }

    /// Names the sources of the values if a log line about a refusal is due.
    pub(super) fn sources_to_tell(&self) -> Option<String> {
        let now = Instant::now();
        let mut told = self.told.lock();
        if told.is_some_and(|told| now.duration_since(told) < TELL_EVERY) {
            return None;
        }
        *told = Some(now);
        let sources =
            self.access.headers.iter().map(|header| format!("{} from {}", header.name, header.source));
        Some(sources.collect::<Vec<_>>().join(", "))
    }
}
