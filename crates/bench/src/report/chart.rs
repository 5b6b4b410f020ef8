//! Pictures as SVG. Colours are those of the page's style sheet, so they follow it to dark screens and to paper.

use std::fmt::Write as _;

use loamfs_console::size::human;

use super::html::escape;
use crate::results::Picture;

/// A bar of a chart.
pub struct Bar {
    /// Whose it is.
    pub name: String,
    /// How long.
    pub value: f64,
    /// What comes behind it, in a paler colour.
    pub more: f64,
    /// What is written behind it.
    pub label: String,
    /// Whether it is the one that the page is about.
    pub ours: bool,
}

const NAMES: f64 = 90.0;
const BARS: f64 = 240.0;
const LABELS: f64 = 110.0;
const ROW: f64 = 18.0;

/// Bars one below the other, all to one scale.
pub fn bars(title: &str, heading: &str, bars: &[Bar]) -> String {
    bars_with(title, heading, bars, NAMES)
}

/// The same, with so much room for names.
pub fn bars_with(title: &str, heading: &str, bars: &[Bar], names: f64) -> String {
    let longest = bars
        .iter()
        .map(|bar| bar.value + bar.more)
        .fold(0.0, f64::max);
    let width = names + BARS + LABELS;
    let height = 20.0 + ROW * bars.len() as f64;
    let mut out = open(title, width, height);
    let _ = write!(
        out,
        "<text x=\"0\" y=\"12\" class=\"pale\">{}</text>",
        escape(heading)
    );
    for (index, bar) in bars.iter().enumerate() {
        let y = 20.0 + ROW * index as f64;
        let length = |value: f64| value / longest.max(f64::MIN_POSITIVE) * BARS;
        let (value, more) = (length(bar.value), length(bar.more));
        let class = if bar.ours { "ours" } else { "bar" };
        let _ = write!(
            out,
            "<text x=\"0\" y=\"{:.0}\">{}</text>\
             <rect class=\"{class}\" x=\"{names}\" y=\"{:.0}\" width=\"{value:.1}\" height=\"13\"/>\
             <rect class=\"owed\" x=\"{:.1}\" y=\"{:.0}\" width=\"{more:.1}\" height=\"13\"/>\
             <text x=\"{:.1}\" y=\"{:.0}\">{}</text>",
            y + 11.0,
            escape(&bar.name),
            y,
            names + value,
            y,
            names + value + more + 5.0,
            y + 11.0,
            escape(&bar.label)
        );
    }
    out + "</svg>"
}

const LEFT: f64 = 58.0;
const PLOT: (f64, f64) = (290.0, 150.0);
const RATE: f64 = 44.0;
const TOP: f64 = 22.0;

/// Offsets over time, with the rate of bytes above.
pub fn offsets(title: &str, heading: &str, picture: &Picture, device: u64) -> String {
    let seconds = picture.seconds.max(1e-9);
    let bottom = TOP + RATE + 8.0 + PLOT.1;
    let mut out = open(title, LEFT + PLOT.0 + 10.0, bottom + 20.0);
    let _ = write!(
        out,
        "<text x=\"{LEFT}\" y=\"12\">{}: {seconds:.1} s</text>",
        escape(heading)
    );
    rate(&mut out, picture, seconds);
    let top = bottom - PLOT.1;
    let _ = write!(
        out,
        "<rect class=\"axis\" x=\"{LEFT}\" y=\"{top}\" width=\"{}\" height=\"{}\"/>\
         <text class=\"pale\" x=\"0\" y=\"{:.0}\">{}</text><text class=\"pale\" x=\"0\" y=\"{bottom}\">0</text>\
         <text class=\"pale\" x=\"{LEFT}\" y=\"{:.0}\">0 s</text>\
         <text class=\"pale\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{seconds:.1} s</text>",
        PLOT.0,
        PLOT.1,
        top + 9.0,
        human(device),
        bottom + 14.0,
        LEFT + PLOT.0,
        bottom + 14.0
    );
    for (op, class) in [('R', "r"), ('W', "w")] {
        let dots = picture
            .millis
            .iter()
            .zip(&picture.kib)
            .zip(picture.ops.chars());
        let mut path = String::new();
        for ((millis, kib), _) in dots.filter(|(_, of)| *of == op) {
            let x = LEFT + (*millis as f64 / 1e3 / seconds).min(1.0) * PLOT.0;
            let y = bottom - (*kib as f64 * 1024.0 / device.max(1) as f64).min(1.0) * PLOT.1;
            let _ = write!(path, "M{x:.1} {y:.1}h1.6v1.6h-1.6z");
        }
        let _ = write!(out, "<path class=\"{class}\" d=\"{path}\"/>");
    }
    out + "</svg>"
}

/// The rate of bytes over time, 0 to 200 MB/s.
fn rate(out: &mut String, picture: &Picture, seconds: f64) {
    const MOST: f64 = 200e6;
    let parts = picture.bytes.len().max(1) as f64;
    let bottom = TOP + RATE;
    let mut path = String::new();
    for (index, bytes) in picture.bytes.iter().enumerate() {
        let x = LEFT + (index as f64 + 0.5) / parts * PLOT.0;
        let rate = *bytes as f64 / (seconds / parts);
        let y = bottom - (rate / MOST).min(1.0) * RATE;
        let step = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{step}{x:.1} {y:.1}");
    }
    let _ = write!(
        out,
        "<text class=\"pale\" x=\"0\" y=\"{:.0}\">200 MB/s</text>\
         <rect class=\"axis\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{RATE}\"/>\
         <path class=\"curve\" d=\"{path}\"/>",
        TOP + 9.0,
        PLOT.0
    );
}

fn open(title: &str, width: f64, height: f64) -> String {
    format!(
        "<svg role=\"img\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\
         <title>{}</title>",
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_width_and_names_are_escaped() {
        let bar = |name: &str, value| Bar {
            name: name.into(),
            value,
            more: 0.0,
            label: String::new(),
            ours: false,
        };
        let svg = bars("t", "h", &[bar("a<b", 1.0), bar("c", 4.0)]);
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        assert!(svg.contains("width=\"60.0\"") && svg.contains("width=\"240.0\""));
    }

    #[test]
    fn dots_stay_inside_the_plot() {
        let picture = Picture {
            every: 1,
            millis: vec![0, 9_999],
            kib: vec![0, 1 << 40],
            ops: "RW".into(),
            bytes: vec![1 << 40],
            seconds: 2.0,
        };
        let svg = offsets("t", "h", &picture, 1 << 30);
        assert!(
            svg.contains("M58.0 224.0") && svg.contains("M348.0 74.0"),
            "{svg}"
        );
    }
}
