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
pub struct Table {
    head: String,
    body: String,
    group: bool,
}

impl Table {
    /// With these headings.
    pub fn new(headings: &[&str]) -> Table {
        let cells = headings
            .iter()
            .map(|cell| format!("<th scope=\"col\">{}</th>", escape(cell)));
        Table {
            head: cells.collect(),
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
        let cell = |cell: &String| {
            let figure = cell.starts_with(|c: char| c.is_ascii_digit());
            let class = if figure { " class=\"figure\"" } else { "" };
            format!("<td{class}>{}</td>", escape(cell))
        };
        let cells: String = cells.iter().map(cell).collect();
        self.body += &format!("<tr class=\"{group} {ours}\">{cells}</tr>\n");
    }

    /// All of it.
    pub fn html(&self) -> String {
        format!(
            "<div class=\"wide\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
            self.head, self.body
        )
    }
}
