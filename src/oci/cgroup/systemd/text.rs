//! Values of annotations, in the form of GVariant's text: `true`, `'text'`, `uint64 5`, `['a', 'b']`. Pure.

use super::wire::Value;

/// Reads one value.
///
/// # Errors
///
/// Why it is none.
pub fn parse(text: &str) -> Result<Value, String> {
    let mut rest = text;
    let value = value(&mut rest)?;
    match rest.trim_start() {
        "" => Ok(value),
        more => Err(format!("`{more}` follows the value")),
    }
}

/// A number of seconds, as microseconds.
pub fn microseconds(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::I32(seconds) => u64::try_from(*seconds).ok()?,
        Value::U32(seconds) => u64::from(*seconds),
        Value::I64(seconds) => u64::try_from(*seconds).ok()?,
        Value::U64(seconds) => *seconds,
        Value::Double(seconds) if *seconds >= 0.0 && *seconds < 1e12 => {
            return Some((seconds * 1e6) as u64);
        }
        _ => return None,
    };
    seconds.checked_mul(1_000_000)
}

fn value(rest: &mut &str) -> Result<Value, String> {
    *rest = rest.trim_start();
    match rest.chars().next() {
        None => Err("the value is empty".to_owned()),
        Some('\'' | '"') => string(rest).map(Value::Text),
        Some('[') => array(rest),
        Some(_) => {
            let word = word(rest);
            match word {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                "byte" | "int32" | "uint32" | "int64" | "uint64" | "double" | "string" => {
                    *rest = rest.trim_start();
                    if word == "string" {
                        return string(rest).map(Value::Text);
                    }
                    number(word, self::word(rest))
                }
                _ if word.contains(['.', 'e']) => number("double", word),
                _ => number("int32", word),
            }
        }
    }
}

fn word<'a>(rest: &mut &'a str) -> &'a str {
    let end = rest.find(|c: char| c.is_whitespace() || ",]".contains(c)).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    word
}

fn number(kind: &str, text: &str) -> Result<Value, String> {
    let value = match kind {
        "byte" => text.parse().ok().map(Value::Byte),
        "uint32" => text.parse().ok().map(Value::U32),
        "int64" => text.parse().ok().map(Value::I64),
        "uint64" => text.parse().ok().map(Value::U64),
        "double" => text.parse().ok().map(Value::Double),
        _ => text.parse().ok().map(Value::I32),
    };
    value.ok_or_else(|| format!("`{text}` is no {kind}"))
}

fn string(rest: &mut &str) -> Result<String, String> {
    let mut text = String::new();
    let mut letters = rest.char_indices();
    let quote = match letters.next() {
        Some((_, quote @ ('\'' | '"'))) => quote,
        _ => return Err(format!("`{rest}` is no text")),
    };
    while let Some((at, letter)) = letters.next() {
        match letter {
            _ if letter == quote => {
                *rest = &rest[at + letter.len_utf8()..];
                return Ok(text);
            }
            '\\' => text.extend(letters.next().map(|(_, letter)| letter)),
            _ => text.push(letter),
        }
    }
    Err("the text does not end".to_owned())
}

fn array(rest: &mut &str) -> Result<Value, String> {
    let mut values: Vec<Value> = Vec::new();
    *rest = &rest[1..];
    loop {
        *rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix(']') {
            *rest = after;
            break;
        }
        if !values.is_empty() {
            *rest = rest.strip_prefix(',').ok_or("the array does not end")?;
        }
        // A deep nesting is nothing that a property has.
        if rest.trim_start().starts_with('[') {
            return Err("arrays of arrays are not supported".to_owned());
        }
        values.push(value(rest)?);
    }
    let Some(first) = values.first() else {
        return Err("an empty array has no type".to_owned());
    };
    let element = first.signature();
    match values.iter().all(|value| value.signature() == element) {
        true => Ok(Value::Array(element, values)),
        false => Err("an array has elements of one type".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_values() {
        for (text, expected) in [
            ("true", Value::Bool(true)),
            ("5", Value::I32(5)),
            ("-5", Value::I32(-5)),
            ("uint64 5000000", Value::U64(5_000_000)),
            ("'inactive-or-failed'", Value::text("inactive-or-failed")),
            (r#""a \" b""#, Value::text("a \" b")),
            ("1.5", Value::Double(1.5)),
            (
                "['a.service', 'b.service']",
                Value::Array(
                    "s".to_owned(),
                    vec![Value::text("a.service"), Value::text("b.service")],
                ),
            ),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", "'", "[", "[1", "[]", "[1, 'a']", "x", "uint32 -1", "5 5", "[[1]]", "byte 300"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
