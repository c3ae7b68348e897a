//! Asks the person at a terminal, line by line.

use std::{
    io::{self, IsTerminal, Write},
    thread,
};

use anyhow::bail;
use tokio::sync::mpsc;

/// Number of lines to read ahead, so that a person may paste several answers at once.
const LINES_AHEAD: usize = 16;

/// A person's terminal. A separate thread reads its lines, so that Ctrl-C ends a question at once.
pub(super) struct Terminal {
    lines: mpsc::Receiver<String>,
}

impl Terminal {
    /// Opens the terminal; `None` if standard input or output is not a terminal.
    pub(super) fn open() -> Option<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let (sender, lines) = mpsc::channel(LINES_AHEAD);
        // The thread ends with the process, since nothing can interrupt a read.
        thread::spawn(move || {
            for line in io::stdin().lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        Some(Self { lines })
    }

    /// Asks a question, and returns the next line without surrounding blanks.
    pub(super) async fn ask(&mut self, question: &str) -> anyhow::Result<String> {
        let mut out = io::stdout();
        write!(out, "{question} ")?;
        out.flush()?;
        match self.lines.recv().await {
            Some(line) => Ok(line.trim().to_owned()),
            None => bail!("the input ended; nothing was written"),
        }
    }
}

pub(super) fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{}", text.trim_end())?;
    out.flush()
}
