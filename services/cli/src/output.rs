//! Printing: data on stdout, everything else on stderr.

use std::io::{self, Write};

use anyhow::Result;
use comfy_table::{Table, presets::NOTHING};
use serde::Serialize;

use crate::args::Format;

/// Prints one value as JSON or YAML, or as the table that `rows` makes.
pub fn print<T: Serialize>(format: Format, value: &T, table: impl FnOnce(bool) -> Table) -> Result<()> {
    match format {
        Format::Json => line(&serde_json::to_string_pretty(value)?),
        Format::Yaml => line(serde_saphyr::to_string(value)?.trim_end()),
        Format::Table => line(&table(false).to_string()),
        Format::Wide => line(&table(true).to_string()),
    }
}

/// Writes a line to stdout; a reader that went away (`| head`) ends the program quietly.
pub fn line(text: &str) -> Result<()> {
    raw(text.as_bytes())?;
    raw(b"\n")
}

/// Writes bytes to stdout as they are.
pub fn raw(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

/// A table without lines, as kubectl prints them.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table
}

/// A span in one or two units: 42s, 3m10s, 2h5m, 4d.
pub fn span(us: i64) -> String {
    let seconds = us.max(0) / 1_000_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d", seconds / 86400),
    }
}

/// Now, in microseconds since 1970.
pub fn now_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A time of day, UTC.
pub fn clock(us: i64) -> String {
    let seconds = us.div_euclid(1_000_000);
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{h:02}:{m:02}:{s:02}.{:03}", us.rem_euclid(1_000_000) / 1000)
}
