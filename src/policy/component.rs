//! One component of a glob.

/// What one component of a path must look like.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    /// `**`: any number of components.
    Cross,
    /// `*`: any name.
    Any,
    /// Exactly this name.
    Name(Box<[u8]>),
    /// A name with wildcards.
    Wild(Box<[Token]>),
}

/// One element of a component with wildcards.
#[derive(Debug, PartialEq)]
pub(crate) enum Token {
    /// `*`: any number of characters.
    Star,
    /// `?`: one character.
    One,
    /// This character.
    Char(char),
    /// `[...]`: one character in these ranges, or, negated, in none of them.
    Class { negated: bool, ranges: Box<[(char, char)]> },
}

impl Part {
    /// Compiles one component, without `/` and braces.
    pub(crate) fn compile(text: &str) -> Result<Self, String> {
        match text {
            "**" => return Ok(Self::Cross),
            "*" => return Ok(Self::Any),
            _ => {}
        }
        if !text.contains(['*', '?', '\\', '[']) {
            return Ok(Self::Name(text.as_bytes().into()));
        }
        let tokens = tokens(text)?;
        let name: Option<String> = tokens
            .iter()
            .map(|token| match token {
                Token::Char(c) => Some(*c),
                _ => None,
            })
            .collect();
        Ok(match name {
            Some(name) => Self::Name(name.into_bytes().into()),
            None => Self::Wild(tokens.into()),
        })
    }

    /// Whether the name matches; `**` is not asked, the automaton treats it.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Cross | Self::Any => true,
            Self::Name(text) => **text == *name,
            Self::Wild(tokens) => matches(tokens, name),
        }
    }
}

/// Which names a path holds, roughly: three sets of 64 bits, in which names share bits. It tells
/// cheaply that a glob cannot match: a path that lacks a name which the glob needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sieve {
    names: u64,
    firsts: u64,
    lasts: u64,
}

impl Sieve {
    /// The names of a path.
    pub(crate) fn of_path(path: &[u8]) -> Self {
        let mut sieve = Self::default();
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            sieve.add(name);
        }
        sieve
    }

    fn add(&mut self, name: &[u8]) {
        // One multiplication spreads the length and the ends of a name over the upper bits.
        let (first, last) = (name[0], name[name.len() - 1]);
        let middle = name[name.len() / 2];
        let key = u32::from_le_bytes([first, middle, last, name.len() as u8]);
        self.names |= 1 << (key.wrapping_mul(0x9e37_79b9) >> 26);
        self.firsts |= 1 << (first & 63);
        self.lasts |= 1 << (last & 63);
    }

    /// Adds what one component of a glob needs.
    pub(crate) fn need(&mut self, part: &Part) {
        match part {
            Part::Cross | Part::Any => {}
            Part::Name(name) => self.add(name),
            Part::Wild(tokens) => {
                let mut bytes = [0; 4];
                if let Some(Token::Char(c)) = tokens.first() {
                    self.firsts |= 1 << (c.encode_utf8(&mut bytes).as_bytes()[0] & 63);
                }
                if let Some(Token::Char(c)) = tokens.last() {
                    let last = c.encode_utf8(&mut bytes).as_bytes();
                    self.lasts |= 1 << (last[last.len() - 1] & 63);
                }
            }
        }
    }

    /// Whether all that `self` needs is in `path`.
    pub(crate) fn may_match(&self, path: &Self) -> bool {
        (self.names & !path.names) | (self.firsts & !path.firsts) | (self.lasts & !path.lasts) == 0
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        at += c.len_utf8();
        match c {
            '*' if tokens.last() == Some(&Token::Star) => {}
            '*' => tokens.push(Token::Star),
            '?' => tokens.push(Token::One),
            '\\' => {
                let Some(escaped) = text[at..].chars().next() else {
                    return Err("ends in a lone `\\`".to_owned());
                };
                at += escaped.len_utf8();
                tokens.push(Token::Char(escaped));
            }
            '[' => {
                let end = class_end(text.as_bytes(), at - 1)
                    .ok_or("`[` is not closed within its component")?;
                tokens.push(class(&text[at..end])?);
                at = end + 1;
            }
            c => tokens.push(Token::Char(c)),
        }
    }
    Ok(tokens)
}

/// The position of the `]` that closes the class opened at `open`, within the component.
pub(crate) fn class_end(text: &[u8], open: usize) -> Option<usize> {
    let mut i = open + 1;
    if matches!(text.get(i), Some(b'!' | b'^')) {
        i += 1;
    }
    let first = i;
    loop {
        match text.get(i)? {
            b'/' => return None,
            b'\\' => i += 1,
            b']' if i > first => return Some(i),
            _ => {}
        }
        i += 1;
    }
}

/// Compiles the inside of a class.
fn class(text: &str) -> Result<Token, String> {
    let (negated, text) = match text.strip_prefix(['!', '^']) {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    // Each character with whether it was escaped: an escaped `-` makes no range.
    let mut chars = Vec::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        chars.push(match c {
            '\\' => (rest.next().ok_or("ends in a lone `\\`")?, true),
            c => (c, false),
        });
    }
    let mut ranges = Vec::new();
    let mut i = 0;
    while let Some(&(low, _)) = chars.get(i) {
        let high = match (chars.get(i + 1), chars.get(i + 2)) {
            (Some(('-', false)), Some(&(high, _))) => {
                i += 3;
                high
            }
            _ => {
                i += 1;
                low
            }
        };
        if low > high {
            return Err(format!("the range `{low}-{high}` is backwards"));
        }
        ranges.push((low, high));
    }
    Ok(Token::Class { negated, ranges: ranges.into() })
}

/// The first character of a name and its length: `None` for one byte that is not UTF-8.
fn first_char(name: &[u8]) -> (Option<char>, usize) {
    if name[0].is_ascii() {
        return (Some(name[0] as char), 1);
    }
    let head = &name[..name.len().min(4)];
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
    };
    match valid.chars().next() {
        Some(c) => (Some(c), c.len_utf8()),
        None => (None, 1),
    }
}

/// Matches with one point of return: the last `*` seen. A `*` before it never needs to take more,
/// so the work is at most tokens times characters.
fn matches(tokens: &[Token], name: &[u8]) -> bool {
    let (mut token, mut at) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        let matched = match tokens.get(token) {
            Some(Token::Star) => {
                back = Some((token + 1, at));
                token += 1;
                continue;
            }
            None if at == name.len() => return true,
            Some(one) if at < name.len() => {
                let (c, len) = first_char(&name[at..]);
                one.takes(c).then_some(len)
            }
            _ => None,
        };
        match (matched, back) {
            (Some(len), _) => {
                token += 1;
                at += len;
            }
            (None, Some((after, from))) if from < name.len() => {
                let next = from + first_char(&name[from..]).1;
                back = Some((after, next));
                token = after;
                at = next;
            }
            _ => return false,
        }
    }
}

impl Token {
    /// Whether this token, which is no `*`, takes one character; `None` is a byte that is not
    /// UTF-8.
    fn takes(&self, c: Option<char>) -> bool {
        match self {
            Self::Star => false,
            Self::One => true,
            Self::Char(own) => c == Some(*own),
            Self::Class { negated, ranges } => {
                let within =
                    c.is_some_and(|c| ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)));
                within != *negated
            }
        }
    }
}
