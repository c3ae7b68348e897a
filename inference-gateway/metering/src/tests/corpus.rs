//! Answers of real servers, as every client reads them.

use std::{collections::BTreeMap, sync::Arc};

use answer::{Completion, NoAnswer, Nonsense, Oddities, whole_as_chat};
use reply::{MessagesReply, ResponsesReply, ToolNames};
use serde_json::Value;
use shared_corpus::{BY_REQUEST, Case, ClientDialect, Read, cases};
use upstream_error::{UpstreamError, Verdict};

use super::*;

fn counter() -> UsageCounter {
    let catalogue = Usage::of(100_000, 100_000, 100_000);
    let bounds = UsageBounds { prompt_estimate: 10, images: 0, max_tokens: 100_000, choices: 1, catalogue };
    UsageCounter::new(bounds, UsageScope::Answer)
}

/// Returns, for each dialect, a form of answer that shows clients as much as possible.
fn replies() -> [Reply; 3] {
    let earlier_calls = Arc::default();
    let responses = ResponsesReply {
        echo: String::new(),
        names: ToolNames::default(),
        summary: true,
        earlier_calls: Arc::clone(&earlier_calls),
    };
    let messages = MessagesReply { thinking: true, stops: Vec::new(), earlier_calls };
    [
        Reply::Chat { include_usage: true },
        Reply::Responses(Arc::new(responses)),
        Reply::Messages(Arc::new(messages)),
    ]
}

fn api(case: &Case) -> UpstreamApi {
    match &*case.api {
        "chat" => UpstreamApi::Chat,
        "messages" => UpstreamApi::Messages,
        "responses" => UpstreamApi::Responses,
        other => panic!("{}: {other} is no API", case.name),
    }
}

fn generation() -> Generation<'static> {
    let id = GenerationId::new(Timestamp::from_millis(1), [7; 10]);
    Generation { id, created: 1, model: "m", server: reply::carried::ServerId::default() }
}

fn settled(usage: Usage) -> Settled {
    Settled { usage, cost: None, completed: 2 }
}

/// Returns what a client reads of a whole answer, and its oddities; `None` if it is not an answer.
fn whole(case: &Case, reply: &Reply) -> Option<(Vec<u8>, Oddities)> {
    let passes = reply.api() == api(case) && api(case) != UpstreamApi::Chat;
    let body = Bytes::from(case.body.clone());
    let usual = if passes {
        Completion::read_passed(api(case), &body)
    } else if api(case) == UpstreamApi::Chat {
        Completion::read(reply, &body)
    } else {
        Err(Nonsense::Form)
    };
    let write = |completion: &Completion<'_>, odd| {
        let usage = counter().with_answer(completion).usage();
        Some((completion.write(generation(), reply, settled(usage)).to_vec(), odd))
    };
    if let Ok(completion) =
        usual.as_ref().map_err(|_| ()).and_then(|it| if it.outputs.len() == 1 { Ok(it) } else { Err(()) })
    {
        return write(completion, completion.odd);
    }
    match whole_as_chat(AnswerReader::new(api(case)).of_choices(1), body) {
        Ok(folded) => {
            let mut completion = Completion::read(reply, &folded.body).unwrap();
            completion.usage = folded.usage;
            write(&completion, folded.odd)
        }
        Err(NoAnswer::Complained(_) | NoAnswer::Nonsense(_)) => None,
    }
}

/// Returns what a client reads of a whole answer if the server was asked for a stream, in pieces of this size.
fn folded(case: &Case, reply: &Reply, piece: usize) -> Option<(Vec<u8>, Oddities)> {
    let reader = AnswerReader::new(api(case)).of_choices(1);
    let mut meter = FoldMeter::new(reader, counter(), 1);
    let mut pieces = case.body.chunks(piece);
    let end = pieces.find_map(|piece| meter.push(Bytes::copy_from_slice(piece)));
    match end.unwrap_or_else(|| meter.upstream_ended()) {
        FoldEnd::Complete => {}
        FoldEnd::Complained(_) | FoldEnd::Broken(_) => return None,
    }
    let answer = meter.take_answer()?.ok()?;
    let completion = Completion::read(reply, &answer).unwrap();
    let written = completion.write(generation(), reply, settled(meter.counter().usage()));
    Some((written.to_vec(), meter.oddities()))
}

/// Returns what a client reads of a stream in pieces of this size.
fn streamed(case: &Case, reply: &Reply, passes: bool, piece: usize) -> Option<(Vec<u8>, Oddities)> {
    let passes = passes && reply.api() == api(case);
    let mut meter = StreamMeter::new(
        AnswerReader::new(api(case)).of_choices(1),
        StreamWriter::new(generation(), reply, 10, passes),
        counter(),
        GrantedTokens::new(1, 100_000),
        1,
    );
    let pieces: Vec<Bytes> = case.body.chunks(piece).map(Bytes::copy_from_slice).collect();
    let end = carry(&mut meter, &pieces, 100_000);
    if !matches!(end, StreamEnd::Complete) {
        return None;
    }
    let usage = meter.usage();
    meter.finish(settled(usage));
    let mut odd = meter.oddities();
    odd.add_if(answer::Oddity::Empty, meter.counter().shows_nothing());
    Some((meter.output().take().to_vec(), odd))
}

fn assert_read(case: &Case, place: &str, read: Option<(Read, Oddities)>, dialect: ClientDialect) {
    if case.error.is_some() {
        assert!(read.is_none(), "{place} is an error");
        return;
    }
    let (mut read, odd) = read.unwrap_or_else(|| panic!("{place} is an answer"));
    let expected = case.expected_in(dialect);
    if expected.usage.is_none() {
        read.usage = None;
    }
    assert_eq!(read, expected, "{place}");
    let odd: Vec<&str> =
        odd.iter().map(answer::Oddity::as_str).filter(|kind| !BY_REQUEST.contains(kind)).collect();
    for kind in odd.iter().filter(|kind| **kind != "empty") {
        assert!(case.odd.iter().any(|known| known == kind), "{place}: {kind} is not expected");
    }
}

#[test]
fn every_client_reads_what_every_server_says() {
    let mut failures = Vec::new();
    for case in cases().iter().filter(|case| case.status == 200) {
        for (dialect, reply) in ClientDialect::ALL.into_iter().zip(replies()) {
            let checked = std::panic::catch_unwind(|| {
                if case.is_asked_for("whole") {
                    let read = whole(case, &reply).map(|(answer, odd)| {
                        let answer: Value = serde_json::from_slice(&answer).unwrap();
                        (Read::whole(dialect, &answer), odd)
                    });
                    assert_read(case, &format!("{} whole, to {dialect:?}", case.name), read, dialect);
                }
                if case.is_asked_for("stream") {
                    for piece in [case.body.len().max(1), 1] {
                        let read = folded(case, &reply, piece).map(|(answer, odd)| {
                            let answer: Value = serde_json::from_slice(&answer).unwrap();
                            (Read::whole(dialect, &answer), odd)
                        });
                        assert_read(case, &format!("{} folded, to {dialect:?}", case.name), read, dialect);
                    }
                    for (passes, piece) in [(false, usize::MAX), (false, 1), (true, usize::MAX), (true, 7)] {
                        let read = streamed(case, &reply, passes, piece.min(case.body.len().max(1)));
                        let read = read
                            .map(|(out, odd)| (Read::stream(dialect, &String::from_utf8(out).unwrap()), odd));
                        let place = format!("{} streamed, to {dialect:?}, passed: {passes}", case.name);
                        assert_read(case, &place, read, dialect);
                    }
                }
            });
            if let Err(failure) = checked {
                let words = failure.downcast_ref::<String>().cloned().unwrap_or_default();
                failures.push(words);
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Returns the code of the error that a chat client reads.
fn code(case: &Case) -> &'static str {
    match UpstreamError::read(&case.body).verdict(case.status) {
        Verdict::TooLong => "context_length_exceeded",
        Verdict::Invalid(_) => "invalid_value",
        Verdict::TooLarge => "request_too_large",
        Verdict::Overloaded => "upstream_unavailable",
        Verdict::Timeout => "upstream_timeout",
        Verdict::Broken => "upstream_error",
    }
}

#[test]
fn every_servers_errors_are_understood_and_have_their_words() {
    let cases = cases();
    let errors: Vec<&Case> = cases.iter().filter(|case| case.status != 200).collect();
    assert!(errors.len() > 20);
    for case in errors {
        assert_eq!(Some(code(case)), case.error.as_deref(), "{}", case.name);
        let words = UpstreamError::read(&case.body).message;
        assert_eq!(words, case.expected.text, "{}", case.name);
    }
}

#[test]
fn the_table_of_servers_says_how_many_cases_each_has() {
    let mut numbers = BTreeMap::<String, usize>::new();
    for case in cases() {
        let (server, _) = case.name.split_once('/').unwrap();
        *numbers.entry(server.to_owned()).or_default() += 1;
    }
    let row = |server: &str, number: usize| format!("| {server} | {number} |");
    let mut rows: Vec<String> = numbers.iter().map(|(server, number)| row(server, *number)).collect();
    rows.push(row("all", numbers.values().sum()));
    let readme = include_str!("../../../../tests/fixtures/upstreams/README.md");
    let (_, table) = readme.rsplit_once("|---|---|\n").unwrap();
    assert_eq!(table.lines().collect::<Vec<_>>(), rows);
}
