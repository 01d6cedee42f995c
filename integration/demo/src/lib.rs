//! The table of contents of a Markdown text.

/// One heading.
#[derive(Debug, PartialEq, Eq)]
pub struct Heading<'a> {
    /// 1 for `#` to 6 for `######`.
    pub level: usize,
    /// The text of the heading, without its marks.
    pub title: &'a str,
}

/// The headings of `text`, in order. A `#` within a fenced code block is none.
pub fn headings(text: &str) -> Vec<Heading<'_>> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let line = line.trim_start();
        match fence {
            Some(mark) if line.starts_with(mark) => fence = None,
            Some(_) => {}
            None if line.starts_with("```") => fence = Some("```"),
            None if line.starts_with("~~~") => fence = Some("~~~"),
            None => found.extend(heading(line)),
        }
    }
    found
}

fn heading(line: &str) -> Option<Heading<'_>> {
    let level = line.bytes().take_while(|b| *b == b'#').count();
    let rest = line[level..].strip_prefix(' ')?;
    let title = rest.trim().trim_end_matches('#').trim_end();
    (1..=6).contains(&level).then_some(Heading { level, title })
}

/// The name that a heading is linked to by: lower case, dashes for blanks, no punctuation.
pub fn anchor(title: &str) -> String {
    title
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .flat_map(char::to_lowercase)
        .collect()
}

/// The table of contents of `text`, as a nested Markdown list.
pub fn outline(text: &str) -> String {
    let headings = headings(text);
    let top = headings.iter().map(|h| h.level).min().unwrap_or(1);
    let line = |h: &Heading<'_>| {
        let indent = "  ".repeat(h.level - top);
        format!("{indent}- [{}](#{})\n", h.title, anchor(h.title))
    };
    headings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_indent_from_the_topmost() {
        let text = "## One\ntext\n### Two, three\n## Four ##\n";
        let expected = "- [One](#one)\n  - [Two, three](#two-three)\n- [Four](#four)\n";
        assert_eq!(outline(text), expected);
    }

    #[test]
    fn code_and_hashtags_are_no_headings() {
        assert_eq!(headings("```sh\n# comment\n```\n#tag\n####### seven\n"), []);
    }
}
