//! Key-services that are slow for some calls, since a part of their store is away.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::*;

type Responses = Pin<Box<dyn Stream<Item = Result<v1::SessionResponse, Status>> + Send>>;

/// Returns when a release with this credential is answered, and whether it succeeds.
type Answering = fn(&str) -> (Duration, bool);

#[derive(Clone)]
pub(super) struct Script {
    answering: Answering,
    /// Credentials of the calls so far.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Script {
    /// Answers each call of a session at its own time, however late others are.
    pub(super) fn session(&self, mut frames: Streaming<v1::SessionRequest>) -> Responses {
        let (answers, responses) = mpsc::channel(1_024);
        let first = v1::SessionResponse { answers: Vec::new(), clock_ms: 0, instance: 0 };
        answers.try_send(Ok(first)).unwrap();
        let script = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(frame)) = frames.message().await {
                for call in frame.calls {
                    let credential = credential(call.request);
                    let (delay, is_done) = (script.answering)(&credential);
                    script.asked.lock().unwrap().push(credential);
                    let response = if is_done {
                        answer::Response::Release(v1::ReleaseResponse {})
                    } else {
                        let (code, message) = (Code::Unavailable as i32, "the store is away".into());
                        answer::Response::Failure(v1::Failure { code, message })
                    };
                    let answered = vec![v1::Answer { id: call.id, response: Some(response) }];
                    let answers = answers.clone();
                    tokio::spawn(async move {
                        sleep(delay).await;
                        let response = v1::SessionResponse { answers: answered, clock_ms: 0, instance: 0 };
                        // The session may have ended.
                        drop(answers.send(Ok(response)).await);
                    });
                }
            }
        });
        ReceiverStream::new(responses).boxed()
    }
}

fn credential(request: Option<call::Request>) -> String {
    match request.unwrap() {
        call::Request::Release(v1::ReleaseRequest { target: Some(Target::Unknown(unknown)) }) => {
            unknown.credential
        }
        other => panic!("not asked here: {other:?}"),
    }
}

fn scripted(answering: Answering) -> (Fake, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::default();
    let script = Some(Script { answering, asked: Arc::clone(&asked) });
    (Fake { script, ..Fake::new(&Ledger::default()) }, asked)
}

async fn release(keys: &Keys, credential: &str) -> Result<(), Unavailable> {
    let generation = GenerationId::generate(&System);
    keys.release(Release::Unknown { credential: credential.into(), generation }).await
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test]
async fn calls_for_a_part_of_the_store_that_is_away_never_keep_others_from_being_sent() {
    let (only, _asked) = scripted(|credential| match credential {
        "away" => (millis(60_000), false),
        _ => (millis(0), true),
    });
    let (keys, _serving) = keys(&[&only]).await;
    for _ in 0..100 {
        let waiting = keys.clone();
        tokio::spawn(async move { release(&waiting, "away").await });
        let near = timeout(Duration::from_secs(2), release(&keys, "near")).await;
        near.expect("it is sent").unwrap();
    }
}

#[tokio::test]
async fn a_failure_is_answered_once_every_key_service_failed_and_an_answer_of_any_wins() {
    let (first, asked_first) = scripted(|credential| match credential {
        "soon" => (millis(300), true),
        "found" => (millis(600), false),
        _ => (millis(1_300), false),
    });
    let (second, asked_second) = scripted(|credential| match credential {
        "found" => (millis(300), true),
        _ => (millis(1_300), false),
    });
    let (keys, _serving) = keys(&[&first, &second]).await;
    let (soon, found, lost) =
        tokio::join!(release(&keys, "soon"), release(&keys, "found"), release(&keys, "lost"));
    soon.unwrap();
    found.unwrap();
    assert!(matches!(lost, Err(Unavailable::Failed(_))), "{lost:?}");
    assert_eq!(*asked_first.lock().unwrap(), ["soon", "found", "lost"]);
    assert_eq!(*asked_second.lock().unwrap(), ["found", "lost"], "once each");
}
