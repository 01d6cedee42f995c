//! D-Bus messages as bytes, see "Marshaling (Wire Format)" in the D-Bus specification. Pure.

/// A value of one complete type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `y`
    Byte(u8),
    /// `b`
    Bool(bool),
    /// `i`
    I32(i32),
    /// `u`
    U32(u32),
    /// `x`
    I64(i64),
    /// `t`
    U64(u64),
    /// `d`
    Double(f64),
    /// `s`
    Text(String),
    /// `a` and the type of the elements, which an empty array needs.
    Array(String, Vec<Value>),
    /// `(...)`
    Tuple(Vec<Value>),
    /// `v`
    Variant(Box<Value>),
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    /// The type.
    pub fn signature(&self) -> String {
        match self {
            Value::Byte(_) => "y".to_owned(),
            Value::Bool(_) => "b".to_owned(),
            Value::I32(_) => "i".to_owned(),
            Value::U32(_) => "u".to_owned(),
            Value::I64(_) => "x".to_owned(),
            Value::U64(_) => "t".to_owned(),
            Value::Double(_) => "d".to_owned(),
            Value::Text(_) => "s".to_owned(),
            Value::Array(element, _) => format!("a{element}"),
            Value::Tuple(fields) => {
                format!("({})", fields.iter().map(Value::signature).collect::<String>())
            }
            Value::Variant(_) => "v".to_owned(),
        }
    }
}

/// What a type is aligned to.
fn alignment(signature: &str) -> usize {
    match signature.as_bytes().first() {
        Some(b'y' | b'g' | b'v') | None => 1,
        Some(b'x' | b't' | b'd' | b'(' | b'{') => 8,
        Some(_) => 4,
    }
}

/// Writes a message, in little endian.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, signature: &str) {
        self.0.push(signature.len() as u8);
        self.0.extend(signature.as_bytes());
        self.0.push(0);
    }

    fn long(&mut self, bytes: [u8; 8]) {
        self.align(8);
        self.0.extend(bytes);
    }

    /// Adds a value.
    pub fn put(&mut self, value: &Value) {
        match value {
            Value::Byte(byte) => self.0.push(*byte),
            Value::Bool(flag) => self.number(u32::from(*flag)),
            Value::I32(number) => self.number(number.cast_unsigned()),
            Value::U32(number) => self.number(*number),
            Value::I64(number) => self.long(number.to_le_bytes()),
            Value::U64(number) => self.long(number.to_le_bytes()),
            Value::Double(number) => self.long(number.to_le_bytes()),
            Value::Text(text) => self.text(text),
            Value::Array(element, values) => {
                self.number(0);
                let length_at = self.0.len() - 4;
                // What pads the first element is not part of the length, and is there without one too.
                self.align(alignment(element));
                let start = self.0.len();
                for value in values {
                    self.put(value);
                }
                let length = (self.0.len() - start) as u32;
                self.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
            }
            Value::Tuple(fields) => {
                self.align(8);
                for field in fields {
                    self.put(field);
                }
            }
            Value::Variant(value) => {
                self.signature(&value.signature());
                self.put(value);
            }
        }
    }
}

/// A method to call.
pub struct Call<'a> {
    /// The bus name.
    pub destination: &'a str,
    /// The object.
    pub path: &'a str,
    /// The interface.
    pub interface: &'a str,
    /// The method.
    pub member: &'a str,
    /// Its arguments.
    pub arguments: &'a [Value],
}

/// The bytes of a call.
pub fn call(call: &Call<'_>, serial: u32) -> Vec<u8> {
    const METHOD_CALL: u8 = 1;
    const VERSION: u8 = 1;
    let mut body = Writer::default();
    for argument in call.arguments {
        body.put(argument);
    }
    let mut writer = Writer(vec![b'l', METHOD_CALL, 0, VERSION]);
    writer.number(body.0.len() as u32);
    writer.number(serial);
    // The fields: an array of (byte, variant), where the variant is a path, a name or a signature.
    writer.number(0);
    let start = writer.0.len();
    let fields = [
        (1, "o", call.path),
        (2, "s", call.interface),
        (3, "s", call.member),
        (6, "s", call.destination),
    ];
    for (code, kind, text) in fields {
        writer.align(8);
        writer.0.push(code);
        writer.signature(kind);
        writer.text(text);
    }
    if !call.arguments.is_empty() {
        writer.align(8);
        writer.0.push(8);
        writer.signature("g");
        let signature: String = call.arguments.iter().map(Value::signature).collect();
        writer.signature(&signature);
    }
    let length = (writer.0.len() - start) as u32;
    writer.0[start - 4..start].copy_from_slice(&length.to_le_bytes());
    writer.align(8);
    writer.0.extend(body.0);
    writer.0
}

/// What came from the bus.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// 2 is an answer, 3 an error, 4 a signal.
    pub kind: u8,
    /// The call that it answers.
    pub reply_to: u32,
    /// The name of a signal.
    pub member: String,
    /// The name of an error.
    pub error: String,
    /// The types of the body.
    pub signature: String,
    /// The body.
    pub body: Vec<u8>,
    big: bool,
}

/// The length of the part of a message that has a fixed size.
pub const START: usize = 16;

/// The length of a whole message, by its start; `None` for nonsense.
pub fn length(start: &[u8; START]) -> Option<usize> {
    /// Far more than systemd has to say; the protocol allows 128 MiB.
    const MOST: usize = 1 << 20;
    let big = match start[0] {
        b'l' => false,
        b'B' => true,
        _ => return None,
    };
    let mut reader = Reader { bytes: start, at: 4, big };
    let body = reader.u32()? as usize;
    reader.u32()?;
    let fields = reader.u32()? as usize;
    let whole = START.checked_add(fields)?.checked_next_multiple_of(8)?.checked_add(body)?;
    (whole <= MOST).then_some(whole)
}

impl Message {
    /// Reads a whole message; `None` for nonsense.
    pub fn parse(bytes: &[u8]) -> Option<Message> {
        let start: &[u8; START] = bytes.get(..START)?.try_into().ok()?;
        if length(start)? != bytes.len() {
            return None;
        }
        let mut message = Message { kind: start[1], big: start[0] == b'B', ..Message::default() };
        let mut reader = Reader { bytes, at: 4, big: message.big };
        let body = reader.u32()? as usize;
        reader.u32()?;
        let end = START + reader.u32()? as usize;
        while reader.at < end {
            reader.align(8)?;
            let code = *reader.take(1)?.first()?;
            let kind = reader.signature()?;
            match (code, kind.as_str()) {
                (3, "s") => message.member = reader.text()?,
                (4, "s") => message.error = reader.text()?,
                (5, "u") => message.reply_to = reader.u32()?,
                (8, "g") => message.signature = reader.signature()?,
                (_, "s" | "o") => drop(reader.text()?),
                (_, "u") => drop(reader.u32()?),
                (_, "g") => drop(reader.signature()?),
                _ => return None,
            }
        }
        message.body = bytes.get(bytes.len() - body..)?.to_vec();
        Some(message)
    }

    /// The texts and paths that the body starts with or that follow a number: what `systemd` sends is made
    /// of nothing else. `None` where it is.
    pub fn texts(&self) -> Option<Vec<String>> {
        let mut reader = Reader { bytes: &self.body, at: 0, big: self.big };
        let mut texts = Vec::new();
        for kind in self.signature.bytes() {
            match kind {
                b'u' => drop(reader.u32()?),
                b's' | b'o' => texts.push(reader.text()?),
                // One variant that holds a text, as `Properties.Get` answers.
                b'v' if reader.signature()? == "s" => texts.push(reader.text()?),
                _ => return None,
            }
        }
        Some(texts)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    big: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn align(&mut self, to: usize) -> Option<()> {
        self.take(self.at.next_multiple_of(to) - self.at).map(|_| ())
    }

    fn u32(&mut self) -> Option<u32> {
        self.align(4)?;
        let bytes: [u8; 4] = self.take(4)?.try_into().ok()?;
        Some(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn text(&mut self) -> Option<String> {
        let length = self.u32()? as usize;
        self.rest_of_text(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = usize::from(*self.take(1)?.first()?);
        self.rest_of_text(length)
    }

    fn rest_of_text(&mut self, length: usize) -> Option<String> {
        let text = std::str::from_utf8(self.take(length)?).ok()?.to_owned();
        (self.take(1)? == [0]).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_laid_out_as_the_specification_says() {
        let mut writer = Writer::default();
        writer.put(&Value::Byte(7));
        writer.put(&Value::text("foo"));
        writer.put(&Value::Array("t".to_owned(), vec![Value::U64(5)]));
        writer.put(&Value::Variant(Box::new(Value::U32(9))));
        #[rustfmt::skip]
        let expected = [
            7, 0, 0, 0, 3, 0, 0, 0, b'f', b'o', b'o', 0,
            8, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
            1, b'u', 0, 0, 9, 0, 0, 0,
        ];
        assert_eq!(writer.0, expected);
    }

    #[test]
    fn an_empty_array_is_padded_too() {
        let mut writer = Writer::default();
        writer.put(&Value::Array("(sv)".to_owned(), Vec::new()));
        assert_eq!(writer.0, [0; 8]);
    }

    #[test]
    fn messages_are_read_as_written() {
        let arguments = [Value::U32(3), Value::text("/job"), Value::text("x.scope")];
        let bytes = call(
            &Call {
                destination: "d",
                path: "/p",
                interface: "i",
                member: "m",
                arguments: &arguments,
            },
            5,
        );
        let message = Message::parse(&bytes).expect("a message");
        assert_eq!((message.kind, message.member.as_str()), (1, "m"));
        assert_eq!(message.signature, "uss");
        assert_eq!(message.texts().expect("texts"), ["/job", "x.scope"]);
    }

    #[test]
    fn cut_and_changed_messages_are_no_messages() {
        let arguments = [Value::text("abc")];
        let bytes = call(
            &Call {
                destination: "d",
                path: "/p",
                interface: "i",
                member: "m",
                arguments: &arguments,
            },
            1,
        );
        for at in 0..bytes.len() {
            assert_eq!(Message::parse(&bytes[..at]), None);
            for value in [0, 1, 127, 255] {
                let mut changed = bytes.clone();
                changed[at] = value;
                // Whatever it is then, reading it ends.
                let _ = Message::parse(&changed).map(|message| message.texts());
            }
        }
    }
}
