//! What `top` shows: a picture of one change.

use std::time::Duration;

use loamfs_console::size::human;
use loamfs_console::time::took;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Gauge, Paragraph, Row, Table};

use crate::watch::{Change, name_of};

/// Lines of the head, of the gauges, and of the foot.
const HEAD: u16 = 2;
const GAUGES: u16 = 6;
const FOOT: u16 = 1;

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, change: &Change<'_>, interval: Duration, paused: bool) {
    let lengths = [
        Constraint::Length(HEAD),
        Constraint::Length(GAUGES),
        Constraint::Min(6),
        Constraint::Length(FOOT),
    ];
    let [head, gauges, tables, foot] = Layout::vertical(lengths).areas(frame.area());
    frame.render_widget(title(change), head);
    draw_gauges(frame, change, gauges);
    let halves = [Constraint::Percentage(55), Constraint::Percentage(45)];
    let [upper, lower] = Layout::vertical(halves).areas(tables);
    frame.render_widget(operations(change), upper);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(45), Constraint::Percentage(55)]).areas(lower);
    frame.render_widget(processes(change), left);
    frame.render_widget(device(change), right);
    let state = if paused { "stopped" } else { "looks" };
    let keys = format!(
        " q ends, space stops and goes on, + - how often; {state} every {:.2} s",
        interval.as_secs_f64()
    );
    frame.render_widget(Paragraph::new(keys).dim(), foot);
}

/// A part of a second's worth of a counter.
fn rate(change: &Change<'_>, number: u64) -> f64 {
    match change.time() {
        Some(time) => number as f64 / time.as_secs_f64().max(1e-9),
        None => 0.0,
    }
}

fn per_second(change: &Change<'_>, path: &str) -> String {
    format!("{:.0}", rate(change, change.grown(path)))
}

fn size_per_second(change: &Change<'_>, path: &str) -> String {
    human(rate(change, change.grown(path)) as u64)
}

fn title(change: &Change<'_>) -> Paragraph<'static> {
    let report = change.now.report();
    let words = |path: &str| {
        report
            .pointer(path)
            .and_then(|value| value.as_str())
            .unwrap_or("")
            .to_owned()
    };
    let label = Some(words("/volume/label")).filter(|label| !label.is_empty());
    let label = label.map(|label| format!(" `{label}`")).unwrap_or_default();
    let state = match (&report["broken"], &report["read_only"]) {
        (broken, _) if broken.is_string() => ", TAKES NO CHANGES ANY MORE",
        (_, only) if *only == true => ", read-only",
        _ => "",
    };
    let first = format!(
        " {}{label} on {}{state}",
        words("/mountpoint"),
        words("/device")
    );
    let requests = change.all_kinds("requests");
    let mean = change.all_kinds("nanoseconds").checked_div(requests);
    let second = format!(
        " {:.0} operations/s, {} each; {}/s read, {}/s written by programs",
        rate(change, requests),
        mean.map_or("-".to_owned(), took),
        size_per_second(change, "/operations/read/bytes"),
        size_per_second(change, "/operations/write/bytes"),
    );
    Paragraph::new(vec![Line::from(first).bold(), Line::from(second)])
}

/// How much of something is in use.
fn gauge(name: &str, part: u64, whole: u64, words: String) -> Gauge<'static> {
    let ratio = if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    };
    let title = Block::new()
        .borders(Borders::TOP)
        .title(format!(" {name} "));
    let style = Style::new().add_modifier(Modifier::REVERSED);
    Gauge::default()
        .block(title)
        .gauge_style(style)
        .ratio(ratio.clamp(0.0, 1.0))
        .label(words)
}

fn draw_gauges(frame: &mut Frame<'_>, change: &Change<'_>, area: Rect) {
    let now = change.now;
    let number = |path: &str| now.number(path);
    let (size, available) = (number("/space/bytes"), number("/space/available"));
    let used = size.saturating_sub(number("/space/free"));
    let (cached, cache) = (
        number("/memory/cached_bytes"),
        number("/memory/cache_bytes"),
    );
    let dirty = number("/memory/dirty_log_bytes") + number("/memory/dirty_home_bytes");
    let [first, second, third] = Layout::vertical([Constraint::Length(2); 3]).areas(area);
    frame.render_widget(
        gauge(
            "space",
            used,
            size,
            format!(
                "{} of {} in use, {} for files",
                human(used),
                human(size),
                human(available)
            ),
        ),
        first,
    );
    frame.render_widget(
        gauge(
            "memory",
            cached,
            cache,
            format!(
                "{} of {} cached, {} to be written",
                human(cached),
                human(cache),
                human(dirty)
            ),
        ),
        second,
    );
    let cleaned = change.grown("/log/cleaned_frags");
    let live = change.grown("/log/cleaned_live_frags");
    let cleaning = match cleaned {
        0 => "no cleaning".to_owned(),
        cleaned => format!(
            "cleaning {:.0} fragments/s, {:.0} % in use",
            rate(change, cleaned),
            100.0 * live as f64 / cleaned as f64
        ),
    };
    let words = format!(
        " segment {}, {}/s; groups: {} log, {} data, {} free; {} images wait; {cleaning}",
        number("/log/last_segment"),
        per_second(change, "/log/last_segment"),
        number("/groups/log"),
        number("/groups/data"),
        number("/groups/free"),
        number("/log/unsettled_images"),
    );
    let block = Block::new().borders(Borders::TOP).title(" log ");
    frame.render_widget(Paragraph::new(words).block(block), third);
}

fn table(
    name: &str,
    head: &[&str],
    rows: Vec<Row<'static>>,
    widths: Vec<Constraint>,
) -> Table<'static> {
    let head: Vec<Cell<'static>> = head
        .iter()
        .map(|word| Cell::from((*word).to_owned()))
        .collect();
    let block = Block::new()
        .borders(Borders::TOP)
        .title(format!(" {name} "));
    Table::new(rows, widths)
        .header(Row::new(head).bold())
        .block(block)
        .column_spacing(1)
}

fn operations(change: &Change<'_>) -> Table<'static> {
    let rows = change.kinds().into_iter().map(|kind| {
        let grown = |field: &str| change.grown(&format!("/operations/{kind}/{field}"));
        let time = |nanos: Option<u64>| nanos.map_or("-".to_owned(), took);
        let bytes = grown("bytes");
        Row::new([
            kind.clone(),
            right(format!("{:.0}", rate(change, grown("requests"))), 9),
            right(time(change.mean_nanos(&kind)), 9),
            right(time(change.slow_nanos(&kind)), 9),
            right(
                if bytes == 0 {
                    String::new()
                } else {
                    human(rate(change, bytes) as u64)
                },
                10,
            ),
            right(
                if grown("errors") == 0 {
                    String::new()
                } else {
                    grown("errors").to_string()
                },
                7,
            ),
        ])
    });
    let head = [
        "operation",
        "       /s",
        "   took",
        "99 % below",
        "   bytes/s",
        "refused",
    ];
    let widths = [10, 9, 9, 10, 10, 7].map(Constraint::Length).to_vec();
    table("operations", &head, rows.collect(), widths)
}

fn processes(change: &Change<'_>) -> Table<'static> {
    let rows = change
        .processes()
        .into_iter()
        .map(|(process, requests, bytes)| {
            Row::new([
                right(process.to_string(), 7),
                name_of(process).unwrap_or_else(|| "(gone)".to_owned()),
                right(format!("{:.0}", rate(change, requests)), 7),
                right(human(rate(change, bytes) as u64), 10),
            ])
        });
    let widths = vec![
        Constraint::Length(7),
        Constraint::Min(6),
        Constraint::Length(7),
        Constraint::Length(10),
    ];
    table(
        "processes",
        &["    pid", "name", "     /s", "   bytes/s"],
        rows.collect(),
        widths,
    )
}

fn device(change: &Change<'_>) -> Table<'static> {
    let kinds = change
        .now
        .report()
        .pointer("/requests/by_kind")
        .and_then(|kinds| kinds.as_object());
    let names = kinds.into_iter().flatten().map(|(name, _)| name.clone());
    let row = |name: &str, path: &str| {
        Row::new([
            name.to_owned(),
            right(per_second(change, &format!("{path}/reads")), 7),
            right(size_per_second(change, &format!("{path}/read_bytes")), 10),
            right(per_second(change, &format!("{path}/writes")), 7),
            right(size_per_second(change, &format!("{path}/write_bytes")), 10),
        ])
    };
    let mut rows = vec![row("all", "/requests/total")];
    rows.extend(names.map(|name| row(&name, &format!("/requests/by_kind/{name}"))));
    let flushes = per_second(change, "/requests/flushes");
    rows.push(Row::new([
        "flushes".to_owned(),
        String::new(),
        String::new(),
        right(flushes, 7),
    ]));
    let widths = vec![
        Constraint::Min(6),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(7),
        Constraint::Length(10),
    ];
    table(
        "device",
        &["for", "reads/s", "         of", "writes/s", "        of"],
        rows,
        widths,
    )
}

fn right(text: String, width: usize) -> String {
    format!("{text:>width$}")
}
