//! Sends commands as lines of text and reads the answers.

use std::io::{self, BufRead, BufReader, Read, Write};

/// Returns a line preceded by authentication, if there is a password.
pub(super) fn signed_in(password: &str, line: &str) -> String {
    if password.is_empty() { line.to_owned() } else { format!("AUTH {password}\r\n{line}") }
}

/// Sends a line, and returns the first line of the reply.
pub(super) fn ask(stream: impl Read + Write, line: &str) -> Option<String> {
    Some(first_lines(stream, line, 1)?.trim_end().to_owned())
}

/// Sends a line, and reads this many lines.
pub(super) fn first_lines(mut stream: impl Read + Write, line: &str, lines: usize) -> Option<String> {
    stream.write_all(format!("{line}\r\n").as_bytes()).ok()?;
    let (mut answer, mut stream) = (String::new(), BufReader::new(stream));
    for _ in 0..lines {
        stream.read_line(&mut answer).ok()?;
    }
    Some(answer)
}

/// Reads the complete reply of a server that supports `QUIT`; a Sentinel does not.
pub(super) fn whole_answer(mut stream: impl Read + Write, line: &str) -> String {
    let asked = stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes());
    asked.and_then(|()| io::read_to_string(stream)).unwrap_or_default()
}
