//! Fuzz targets for upstreams' answers, streamed and whole.

use shared::json::{Kind, Object, RawValue};
use shared_catalog::UpstreamApi;
use shared_fuzz::{Examples, Input, fuzz};

use super::{
    dialects::{messages, responses},
    *,
};

/// The payloads are those that the standard's algorithm finds in the whole text, wherever the text is cut.
#[test]
fn server_sent_events() {
    let examples = Examples::folder("chat-streams").and(Examples::folder("messages-streams"));
    fuzz(
        &examples.and(Examples::of(["\u{feff}data: a\r\rdata\n\ndata:b\r\ndata: c\n\n: x\n\n"])),
        |input: &Input| {
            let mut decoder = Decoder::default();
            let mut payloads = Vec::new();
            for piece in input.pieces() {
                decoder.push(Bytes::copy_from_slice(piece));
                while let Some(data) = decoder.next_data() {
                    payloads.push(whole_payload(data).to_vec());
                }
            }
            // A body that is JSON has one payload, with its end.
            if !begins_as_json(input.bytes()) {
                assert_eq!(payloads, reference_payloads(input.bytes()));
            }
            assert!(decoder.held_bytes() <= input.bytes().len());
        },
    );
}

fn begins_as_json(bytes: &[u8]) -> bool {
    let is_blank = |byte: &&u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
    matches!(bytes.iter().find(|byte| !is_blank(byte)), Some(b'{' | b'['))
}

/// Applies section 9.2.6 of the HTML standard to the whole text. Empty payloads are skipped, and an object that follows
/// another begins a new payload.
fn reference_payloads(bytes: &[u8]) -> Vec<Vec<u8>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (mut payloads, mut data, mut line) = (Vec::new(), Vec::new(), Vec::new());
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' if at > 0 && bytes[at - 1] == b'\r' => {}
            b'\n' | b'\r' => {
                let field = std::mem::take(&mut line);
                let colon = field.iter().position(|byte| *byte == b':');
                let (name, value) =
                    colon.map_or((&field[..], &b""[..]), |at| (&field[..at], &field[at + 1..]));
                if field.is_empty() {
                    let payload: Vec<u8> = std::mem::take(&mut data);
                    // The last line's end is not part of the payload.
                    payloads.extend(payload.split_last().map(|(_, payload)| payload.to_vec()));
                } else if name == b"data" || field.starts_with(b"error: {") {
                    let value = value.strip_prefix(b" ").unwrap_or(value);
                    let next = value.trim_ascii();
                    if data.trim_ascii_end().ends_with(b"}") && (next.starts_with(b"{") || next == b"[DONE]")
                    {
                        let payload: Vec<u8> = std::mem::take(&mut data);
                        payloads.push(payload[..payload.len() - 1].to_vec());
                    }
                    data.extend_from_slice(value);
                    data.push(b'\n');
                }
            }
            other => line.push(*other),
        }
    }
    payloads.retain(|payload| !payload.is_empty());
    payloads
}

#[test]
fn chat_streams() {
    fuzz(&Examples::folder("chat-streams"), |input: &Input| check_stream(UpstreamApi::Chat, input));
}

#[test]
fn messages_streams() {
    fuzz(&Examples::folder("messages-streams"), |input: &Input| check_stream(UpstreamApi::Messages, input));
}

#[test]
fn responses_streams() {
    fuzz(&Examples::folder("responses-streams"), |input: &Input| check_stream(UpstreamApi::Responses, input));
}

/// Checks that events are JSON in every dialect, and that a chat contains the texts of the whole answer that the stream
/// is folded into.
fn check_stream(api: UpstreamApi, input: &Input) {
    for reply in [CHAT, responses(), messages()] {
        written(api, &reply, false, input);
    }
    if api == UpstreamApi::Chat {
        return check_fold(input);
    }
    let reply = if api == UpstreamApi::Messages { messages() } else { responses() };
    written(api, &reply, true, input);
    check_fold_of(api, input);
}

fn payloads(input: &Input) -> Vec<Bytes> {
    let mut decoder = Decoder::default();
    decoder.push(Bytes::copy_from_slice(input.bytes()));
    std::iter::from_fn(|| decoder.next_data().map(whole_payload)).collect()
}

/// Writes the stream that a client reads, to its end. It succeeds if a finish reason came.
fn written(api: UpstreamApi, reply: &Reply, passes: bool, input: &Input) -> BytesMut {
    let (mut reader, mut writer) =
        (AnswerReader::new(api), StreamWriter::new(generation(), reply, 99, passes));
    let (mut out, mut failed) = (BytesMut::new(), false);
    for payload in payloads(input) {
        match reader.event(&payload) {
            Ok(Event::Chunk(chunk)) => failed = writer.chunk(&chunk, &mut out).is_err(),
            Ok(Event::Failed(..)) | Err(_) => failed = true,
            Ok(Event::Done) => break,
        }
        if failed {
            break;
        }
    }
    if failed || (!writer.is_finished() && input.choice(2) == 0) {
        writer.fail(&ApiError::new(Code::UpstreamError, "It failed."), Some(SETTLED), &mut out);
    } else {
        writer.cut(&mut out);
        assert!(writer.is_finished() && writer.finished_choices() > 0);
        writer.done(SETTLED, &mut out);
    }
    assert!(out.ends_with(b"\n\n"));
    let are_unique = payloads(input).iter().all(|payload| is_unique(payload));
    let mut decoder = Decoder::default();
    decoder.push(out.clone().freeze());
    let mut ends = 0;
    while let Some(data) = decoder.next_data().map(whole_payload) {
        assert_eq!(ends, 0, "nothing comes behind the end");
        if &data[..] == b"[DONE]" {
            ends += 1;
        } else {
            // A tree cannot hold everything that a passed event may contain.
            let json = serde_json::from_slice::<&RawValue>(&data);
            assert!(!are_unique || is_unique(&data), "{}", String::from_utf8_lossy(&data));
            assert!(json.is_ok_and(|raw| raw.get().starts_with('{')), "{}", String::from_utf8_lossy(&data));
        }
    }
    assert_eq!(decoder.held_bytes(), 0);
    out
}

/// Returns whether an object, and each object directly in it, has no duplicate names.
fn is_unique(json: &[u8]) -> bool {
    let is_unique_in = |raw: &RawValue| Kind::of(raw) != Kind::Object || Object::from_raw(raw).is_ok();
    Object::from_slice(json).is_ok_and(|object| object.iter().all(|(_, raw)| is_unique_in(raw)))
}

/// Joins the texts of each choice in a chat stream.
fn texts(stream: &mut BytesMut) -> Vec<String> {
    let mut texts = vec![String::new(); 8];
    for event in events(stream) {
        for choice in event["choices"].as_array().into_iter().flatten() {
            let text = choice["delta"]["content"].as_str().unwrap_or_default();
            texts[usize::try_from(choice["index"].as_u64().unwrap()).unwrap()].push_str(text);
        }
    }
    texts
}

/// Checks that a stream that is folded into a whole answer contains the same texts as its events.
fn check_fold(input: &Input) {
    let (mut fold, mut finished) = (Fold::default(), Vec::new());
    for payload in payloads(input) {
        match Event::read(&payload) {
            Ok(Event::Chunk(chunk)) => {
                // A choice that continues after its end is cut only in the stream.
                let goes_on = |index: &usize| chunk.choices.iter().any(|choice| choice.index == *index);
                if finished.iter().any(goes_on) {
                    return;
                }
                finished.extend(chunk.choices.iter().filter(|it| it.finish.is_some()).map(|it| it.index));
                // If a chunk has several pieces of a choice, one of them may come after the end too.
                let mut indexes: Vec<_> = chunk.choices.iter().map(|choice| choice.index).collect();
                indexes.sort_unstable();
                if indexes.windows(2).any(|pair| pair[0] == pair[1]) {
                    return;
                }
                fold.add(&chunk);
            }
            Ok(Event::Done) => break,
            Ok(Event::Failed(..)) | Err(_) => return,
        }
    }
    let Ok(answer) = fold.into_answer() else { return };
    let Ok(completion) = Completion::read(&CHAT, &answer) else { return };
    let whole: Value = serde_json::from_slice(&completion.write(generation(), &CHAT, SETTLED)).unwrap();
    let texts = texts(&mut written(UpstreamApi::Chat, &CHAT, false, input));
    for choice in whole["choices"].as_array().unwrap() {
        let streamed = &texts[usize::try_from(choice["index"].as_u64().unwrap()).unwrap()];
        let text = choice["message"]["content"].as_str().unwrap_or_default();
        // Only the whole answer joins the two halves of a split surrogate pair; a stream shows U+FFFD in their place.
        assert!(text == streamed || streamed.contains('\u{fffd}'), "{text:?} {streamed:?}");
    }
}

/// Checks that a stream of another API becomes a chat with one choice, if it can be converted.
fn check_fold_of(api: UpstreamApi, input: &Input) {
    let (mut reader, mut fold) = (AnswerReader::new(api), Fold::default());
    for payload in payloads(input) {
        match reader.event(&payload) {
            Ok(Event::Chunk(chunk)) => fold.add(&chunk),
            Ok(Event::Done | Event::Failed(..)) | Err(_) => break,
        }
    }
    if let Ok(answer) = fold.into_answer()
        && let Ok(completion) = Completion::read(&CHAT, &answer)
    {
        assert_eq!(completion.outputs.len(), 1);
    }
}

/// A whole answer is valid JSON in every dialect, with the texts that a tree contains.
#[test]
fn chat_answers() {
    fuzz(&Examples::folder("chat-answers"), |input: &Input| {
        let Ok(completion) = Completion::read(&CHAT, input.bytes()) else { return };
        for reply in [responses(), messages()] {
            assert!(
                serde_json::from_slice::<Value>(&completion.write(generation(), &reply, SETTLED)).is_ok()
            );
        }
        let ours: Value = serde_json::from_slice(&completion.write(generation(), &CHAT, SETTLED)).unwrap();
        assert_eq!(ours["usage"], usage());
        let Ok(theirs) = serde_json::from_slice::<Value>(input.bytes()) else { return };
        let Some(theirs) = theirs["choices"].as_array() else { return };
        let theirs: Vec<&Value> = theirs.iter().filter(|choice| choice.is_object()).collect();
        let ours = ours["choices"].as_array().unwrap();
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(theirs) {
            for name in ["content", "refusal"] {
                let text = theirs["message"][name].as_str();
                assert_eq!(ours["message"][name].as_str(), text);
            }
        }
    });
}

#[test]
fn embeddings_answers() {
    fuzz(&Examples::folder("chat-answers"), |input: &Input| {
        let Ok(vectors) = Completion::read(&Reply::Embeddings, input.bytes()) else { return };
        let written = vectors.write(generation(), &Reply::Embeddings, SETTLED);
        assert!(serde_json::from_slice::<&RawValue>(&written).is_ok());
        assert!(vectors.outputs.is_empty());
    });
}

#[test]
fn messages_answers() {
    fuzz(&Examples::folder("messages-answers"), |input: &Input| check_whole(UpstreamApi::Messages, input));
}

#[test]
fn responses_answers() {
    fuzz(&Examples::folder("responses-answers"), |input: &Input| check_whole(UpstreamApi::Responses, input));
}

/// Checks that an answer that passes is valid JSON with the client's name of the model, and reports the same usage as a
/// chat.
fn check_whole(api: UpstreamApi, input: &Input) {
    let body = Bytes::copy_from_slice(input.bytes());
    let chat = whole_as_chat(AnswerReader::new(api), body.clone());
    let Ok(passed) = Completion::read_passed(api, &body) else { return };
    let reply = if api == UpstreamApi::Messages { messages() } else { responses() };
    let written = passed.write(generation(), &reply, SETTLED);
    assert!(serde_json::from_slice::<&RawValue>(&written).is_ok());
    assert!(!is_unique(&body) || is_unique(&written), "{}", String::from_utf8_lossy(&written));
    if let Ok(tree) = serde_json::from_slice::<Value>(&written) {
        assert!(tree.get("model").is_none_or(|model| model == generation().model), "{tree}");
        assert!(tree["usage"].is_object(), "{tree}");
    }
    if let Ok(chat) = chat
        && Completion::read(&CHAT, &chat.body).is_ok()
    {
        assert_eq!(chat.usage, passed.usage);
    }
}

/// Names of the members in which a body reports usage.
const USAGE: [&str; 2] = ["usage", "timings"];

/// The usage found at the end of a body is that of the whole body, if no other member has its name.
#[test]
fn usage_in_the_end_of_a_body() {
    fuzz(&Examples::folder("chat-answers"), |input: &Input| {
        let body = input.bytes();
        let found = Reported::find_last(body);
        let names = |name: &str| memchr::memmem::find_iter(body, name).count();
        if let Ok(completion) = Completion::read(&CHAT, body)
            && let Ok(tree) = serde_json::from_slice::<Value>(body)
            && USAGE.iter().map(|name| names(name)).sum::<usize>() == 1
            && USAGE.iter().any(|name| tree.get(name).is_some())
        {
            assert_eq!(completion.usage, found);
        }
    });
}
