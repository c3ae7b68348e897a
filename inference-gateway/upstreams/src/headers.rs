//! Headers of requests to an upstream, including its credential. Values from files may change while the gateway runs.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use shared_catalog::{Access, Source};
use shared_client::upstream_access::header_values;
use shared_config::{ConfigError, current::Current};
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};

/// Maximum time to read changed values, including the wait for other readers. The request waits for it.
const REREAD_DEADLINE: Duration = Duration::from_secs(2);
/// Time between two log lines about a refused credential, which affects every request.
const TELL_EVERY: Duration = Duration::from_mins(1);

/// Names and values of headers, in the order of the catalogue.
pub(crate) type HeaderValues = Box<[(HeaderName, HeaderValue)]>;

/// The headers of an upstream's requests.
pub(crate) struct UpstreamHeaders {
    access: Access,
    current: Arc<Current<HeaderValues>>,
    /// Held while a thread rereads the files. A file that hangs, as on a dead mount, blocks only one thread, however
    /// many requests are refused meanwhile.
    rereading: Arc<tokio::sync::Mutex<()>>,
    /// Time of the last log line about a refusal.
    told: Mutex<Option<Instant>>,
}

impl UpstreamHeaders {
    pub(crate) fn read(access: &Access) -> Result<Self, ConfigError> {
        let current = Arc::new(Current::new(header_values(access)?));
        let (rereading, told) = (Arc::default(), Mutex::default());
        Ok(Self { access: access.clone(), current, rereading, told })
    }

    pub(crate) fn get(&self) -> Arc<HeaderValues> {
        self.current.get()
    }

    /// Returns values that differ from those that the upstream refused, if there are any now. A short-lived credential
    /// is replaced in its file and needs no reload.
    pub(crate) async fn replacing(&self, refused: &HeaderValues) -> Option<Arc<HeaderValues>> {
        timeout(REREAD_DEADLINE, self.reread(refused)).await.ok().flatten()
    }

    async fn reread(&self, refused: &HeaderValues) -> Option<Arc<HeaderValues>> {
        if !self.access.headers.iter().any(|header| matches!(header.source, Source::File(_))) {
            return None;
        }
        let turn = self.rereading.clone().lock_owned().await;
        let known = self.current.get();
        if *known != *refused {
            return Some(known);
        }
        let (access, current) = (self.access.clone(), self.current.clone());
        // Values that arrive after the deadline serve later requests.
        let read_into_current = move || {
            match header_values(&access) {
                Ok(read) if read == *known => {}
                Ok(read) => current.replace(read),
                Err(error) => tracing::warn!(%error, "cannot reread a credential"),
            }
            drop(turn);
        };
        spawn_blocking(read_into_current).await.ok()?;
        let current = self.current.get();
        (*current != *refused).then_some(current)
    }

    /// Returns the sources of the values if a log line about a refusal is due.
    pub(crate) fn sources_to_tell(&self) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use std::{env, fs, process::Command};

    use shared_catalog::Header;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn a_file_that_hangs_takes_one_thread_and_what_it_says_at_last_is_used() {
        let file = env::temp_dir().join(format!("credential-{}", std::process::id()));
        fs::write(&file, "one").unwrap();
        let source = Source::File(file.clone());
        let header = Header { name: http::header::AUTHORIZATION, prefix: "Bearer ", source };
        let headers = UpstreamHeaders::read(&Access { headers: vec![header], ..Access::default() }).unwrap();
        let refused = headers.get();
        fs::remove_file(&file).unwrap();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        let asks = (0..3).map(|_| headers.replacing(&refused));
        let replaced = futures_util::future::join_all(asks).await;
        assert!(replaced.iter().all(Option::is_none));
        assert!(headers.rereading.try_lock().is_err(), "the first reader has not come back, and reads alone");
        // Writing unblocks all readers.
        fs::write(&file, "two").unwrap();
        while headers.get()[0].1 != "Bearer two" {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(headers.replacing(&refused).await.unwrap()[0].1, "Bearer two");
        fs::remove_file(&file).unwrap();
    }
}
