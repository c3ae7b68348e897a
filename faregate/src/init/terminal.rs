//! Questions to the person at a terminal, line by line.

use std::{
    io::{self, IsTerminal, Write},
    thread,
};

use anyhow::bail;
use tokio::sync::mpsc;

/// Lines that are read ahead of a question: a person who pastes several answers at once is understood.
const LINES_AHEAD: usize = 16;

/// The terminal of a person. Its lines are read by a thread, so that Ctrl-C ends a question at once.
pub(super) struct Terminal {
    lines: mpsc::Receiver<String>,
}

impl Terminal {
    /// The terminal, if there is one to ask at and to answer on.
    pub(super) fn open() -> Option<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let (sender, lines) = mpsc::channel(LINES_AHEAD);
        // The thread ends with the process: nothing can interrupt a read.
        thread::spawn(move || {
            for line in io::stdin().lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        Some(Self { lines })
    }

    /// Asks, and returns the next line without blanks around it.
    pub(super) async fn ask(&mut self, question: &str) -> anyhow::Result<String> {
        let mut out = io::stdout();
        write!(out, "{question} ")?;
        out.flush()?;
        match self.lines.recv().await {
            Some(line) => Ok(line.trim().to_owned()),
            None => bail!("the input has ended; nothing was written"),
        }
    }
}

/// Says something, on a terminal or not.
pub(super) fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{}", text.trim_end())?;
    out.flush()
}
