//! Pieces of HTML.

/// Text that means itself.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Pictures side by side, with a caption of HTML.
pub fn figure(caption: &str, panels: &[String]) -> String {
    format!(
        "<figure><figcaption>{caption}</figcaption><div class=\"panels\">{}</div></figure>\n",
        panels.concat()
    )
}

/// A table: words to the left, figures to the right.
///
/// On a narrow screen each row becomes a block, and each cell says its heading.
pub struct Table {
    headings: Vec<String>,
    body: String,
    group: bool,
}

impl Table {
    /// With these headings.
    pub fn new(headings: &[&str]) -> Table {
        Table {
            headings: headings.iter().map(|cell| escape(cell)).collect(),
            body: String::new(),
            group: false,
        }
    }

    /// The next row begins a group.
    pub const fn group(&mut self) {
        self.group = true;
    }

    /// A row; ours are marked.
    pub fn row(&mut self, ours: bool, cells: &[String]) {
        let group = if std::mem::take(&mut self.group) {
            "group"
        } else {
            ""
        };
        let ours = if ours { "ours" } else { "" };
        let headings = self
            .headings
            .iter()
            .map(String::as_str)
            .chain(std::iter::repeat(""));
        let cell = |(cell, heading): (&String, &str)| {
            let figure = cell.starts_with(|c: char| c.is_ascii_digit());
            let class = if figure { " class=\"figure\"" } else { "" };
            format!("<td{class} data-of=\"{heading}\">{}</td>", escape(cell))
        };
        let cells: String = cells.iter().zip(headings).map(cell).collect();
        self.body += &format!("<tr class=\"{group} {ours}\">{cells}</tr>\n");
    }

    /// All of it.
    pub fn html(&self) -> String {
        let heads = self.headings.iter();
        let heads: String = heads
            .map(|cell| format!("<th scope=\"col\">{cell}</th>"))
            .collect();
        format!(
            "<div class=\"wide\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
            self.body
        )
    }
}
