//! Reads a whole answer: in the usual form directly, or converted from any other form.

use answer::{AnswerReader, Completion, Event, Folded, NoAnswer, Nonsense, whole_as_chat};
use bytes::Bytes;
use shared::json::{RawValue, from_slice};
use shared_catalog::UpstreamApi;
use upstreams::{Running, UpstreamFailure, of_event};

use crate::generation::job::Job;

/// Why an answer is not delivered.
pub(super) enum NotUnderstood {
    /// It has more calls, or longer names, than may be delivered. It was generated, though.
    Beyond,
    Failed(UpstreamFailure),
}

/// Everything readable was already folded, so the server has failed only if the answer broke off or the body contains
/// none.
impl From<Nonsense> for NotUnderstood {
    fn from(nonsense: Nonsense) -> Self {
        match nonsense {
            Nonsense::Beyond => Self::Beyond,
            Nonsense::Malformed { .. }
            | Nonsense::Error
            | Nonsense::Choices
            | Nonsense::Form
            | Nonsense::Unfinished
            | Nonsense::Interleaved => Self::Failed(UpstreamFailure::Broken(nonsense.to_string())),
        }
    }
}

/// Reads an answer, in the usual form or converted to chat (`unusual`). A folded stream is already chat.
pub(super) fn read<'b>(
    job: &Job,
    running: &Running,
    body: &'b Bytes,
    is_folded: bool,
    unusual: &'b mut Option<Folded>,
) -> Result<Completion<'b>, NotUnderstood> {
    if is_folded {
        return Ok(Completion::read(&job.forward.reply, body)?);
    }
    match usual(job, running, body) {
        Ok(completion) => Ok(completion),
        Err(nonsense) => folded(job, unusual.insert(fold(job, running, body, nonsense)?)),
    }
}

/// Reads an answer in the usual form of chat, or in the form to pass on.
fn usual<'b>(job: &Job, running: &Running, body: &'b [u8]) -> Result<Completion<'b>, Nonsense> {
    let form = running.upstream().form(&job.forward);
    if form.is_passed() {
        return Completion::read_passed(form.api(), body);
    }
    if form.api() != UpstreamApi::Chat {
        return Err(Nonsense::Form);
    }
    let completion = Completion::read(&job.forward.reply, body)?;
    // Some servers split the only choice in two.
    if completion.outputs.len() as u64 > job.forward.n { Err(Nonsense::Form) } else { Ok(completion) }
}

/// Converts an answer in any other form to chat. `nonsense` is why it is not in the usual form.
fn fold(job: &Job, running: &Running, body: &Bytes, nonsense: Nonsense) -> Result<Folded, NotUnderstood> {
    let upstream = running.upstream();
    if !job.forward.reply.is_of_chat() {
        // An error with status 200 has the same form for all requests.
        return Err(match AnswerReader::new(UpstreamApi::Chat).event(body) {
            Ok(Event::Failed(error, _)) => {
                NotUnderstood::Failed(of_event(&error, &upstream.entry, &job.forward))
            }
            Ok(Event::Chunk(_) | Event::Done) | Err(_) => nonsense.into(),
        });
    }
    if nonsense == Nonsense::Beyond {
        return Err(nonsense.into());
    }
    let reader = AnswerReader::new(upstream.form(&job.forward).api()).of_choices(job.forward.n);
    whole_as_chat(reader, body.clone()).map_err(|none| match none {
        NoAnswer::Complained(error) => NotUnderstood::Failed(of_event(&error, &upstream.entry, &job.forward)),
        NoAnswer::Nonsense(Nonsense::Choices) if is_an_answer(body) => {
            NotUnderstood::Failed(UpstreamFailure::Empty)
        }
        NoAnswer::Nonsense(nonsense) => nonsense.into(),
    })
}

/// Reads an answer that was folded.
fn folded<'b>(job: &Job, folded: &'b Folded) -> Result<Completion<'b>, NotUnderstood> {
    let mut completion = Completion::read(&job.forward.reply, &folded.body)?;
    (completion.usage, completion.odd) = (folded.usage, folded.odd);
    Ok(completion)
}

/// Returns whether a body could come from a model server, rather than being a proxy's page or part of an answer. What
/// the request made the model write may be why the JSON is broken.
fn is_an_answer(body: &[u8]) -> bool {
    match from_slice::<&RawValue>(body) {
        Ok(_) => true,
        Err(e) if body.trim_ascii_start().starts_with(b"{") => !e.is_eof(),
        Err(_) => body.windows(5).any(|part| part == b"data:"),
    }
}
