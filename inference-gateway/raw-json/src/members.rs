//! Reads the values of a body. Errors name the location of an invalid value.

use std::{borrow::Cow, fmt, ops::RangeInclusive};

use memchr::memmem::Finder;
use serde::Deserialize;
use shared::{
    error::{ApiError, Code},
    json::{Kind, Object, RawValue, each_element, parse_error, parse_object, text},
};

/// Maximum length of a number in characters. It is forwarded as spelled. No parameter needs more.
const MAX_DIGITS: usize = 64;

/// No bound on messages, parts and calls, except the bound on the body.
pub const ANY_NUMBER: usize = usize::MAX;

/// Location of a value in the body, as a list of steps on the stack. It is written out only for an error.
#[derive(Clone, Copy)]
pub enum ParamPath<'p> {
    /// A member of an object. The body's own members have no parent.
    Member(Option<&'p ParamPath<'p>>, &'p str),
    /// An element of an array.
    Element(&'p ParamPath<'p>, usize),
}

impl fmt::Display for ParamPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(None, name) => f.write_str(name),
            Self::Member(Some(parent), name) => write!(f, "{parent}.{name}"),
            Self::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// The members of an object of the body.
pub struct Members<'a, 'p> {
    object: Object<'a>,
    /// `None` for the body itself.
    at: Option<ParamPath<'p>>,
}

impl<'a> Members<'a, '_> {
    pub fn of_body(body: &'a [u8]) -> Result<Self, ApiError> {
        Ok(Self { object: parse_object(body)?, at: None })
    }

    /// Returns an optional member. `null` means absent, as in the OpenAI API.
    pub fn get<'s>(&'s self, name: &'s str) -> Option<Value<'a, 's>> {
        self.even_null(name).filter(|value| value.kind() != Kind::Null)
    }

    pub fn require<'s>(&'s self, name: &'s str) -> Result<Value<'a, 's>, ApiError> {
        self.even_null(name).ok_or_else(|| {
            let at = self.place(name).to_string();
            let message = format!("Missing required parameter: '{at}'.");
            ApiError::at(Code::MissingRequiredParameter, at, message)
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'a, '_>)> {
        self.object.iter().map(|(name, raw)| (name, Value { raw, at: self.place(name) }))
    }

    /// Returns an optional member. `null` counts as a value.
    pub fn even_null<'s>(&'s self, name: &'s str) -> Option<Value<'a, 's>> {
        self.object.get(name).map(|raw| Value { raw, at: self.place(name) })
    }

    fn place<'s>(&'s self, name: &'s str) -> ParamPath<'s> {
        ParamPath::Member(self.at.as_ref(), name)
    }
}

/// A value of the body, with its location.
#[derive(Clone, Copy)]
pub struct Value<'a, 'p> {
    raw: &'a RawValue,
    at: ParamPath<'p>,
}

impl<'a, 'p> Value<'a, 'p> {
    pub const fn at(raw: &'a RawValue, at: ParamPath<'p>) -> Self {
        Self { raw, at }
    }

    /// Returns the value without its location.
    pub const fn unplaced(&self) -> &'a RawValue {
        self.raw
    }

    pub fn raw(&self) -> &'a str {
        self.raw.get()
    }

    /// Returns the location as errors name it.
    pub fn place(&self) -> String {
        self.at.to_string()
    }

    pub fn kind(&self) -> Kind {
        Kind::of(self.raw)
    }

    /// Makes an error about this value. `problem` continues `Invalid 'messages[0].role': `.
    pub fn error(&self, code: Code, problem: &str) -> ApiError {
        let at = self.at.to_string();
        let message = format!("Invalid '{at}': {problem}.");
        ApiError::at(code, at, message)
    }

    /// Makes the error for a value that is not `expected`.
    pub fn wrong_type(&self, expected: &str) -> ApiError {
        self.error(Code::InvalidType, &format!("expected {expected}, got {}", self.kind().name()))
    }

    /// Returns whether content is a text instead of a list of `parts`.
    pub fn is_text(&self, parts: &str) -> Result<bool, ApiError> {
        match self.kind() {
            Kind::String => Ok(true),
            Kind::Array => Ok(false),
            Kind::Null | Kind::Bool | Kind::Number | Kind::Object => {
                Err(self.wrong_type(&format!("a string or {parts}")))
            }
        }
    }

    /// Returns whether this value may contain one of these words. They must not need escapes.
    pub fn may_have(&self, words: &[Finder<'_>]) -> bool {
        let json = self.raw().as_bytes();
        let is_escaped = || memchr::memchr_iter(b'\\', json).any(|at| json.get(at + 1) == Some(&b'u'));
        words.iter().any(|word| word.find(json).is_some()) || is_escaped()
    }

    /// Passes the texts of content to `take`, as JSON strings: the content itself, or the text that `text_of` finds in
    /// each of its parts.
    pub fn each_text(
        &self,
        parts: &str,
        text_of: impl Fn(&Members<'a, '_>) -> Result<&'a str, ApiError>,
        mut take: impl FnMut(&'a str),
    ) -> Result<(), ApiError> {
        if self.is_text(parts)? {
            take(self.string_token()?);
            return Ok(());
        }
        self.objects_if_any(ANY_NUMBER, |part| {
            take(text_of(part)?);
            Ok(())
        })
        .map(drop)
    }

    pub fn boolean(&self) -> Result<bool, ApiError> {
        self.expect(Kind::Bool, "a boolean")?;
        Ok(self.raw() == "true")
    }

    /// Reads an integer within bounds. `1.0` is not an integer.
    pub fn integer(&self, bounds: RangeInclusive<i64>) -> Result<i64, ApiError> {
        self.expect(Kind::Number, "an integer")?;
        let token = self.digits()?;
        if token.contains(['.', 'e', 'E']) {
            return Err(self.error(Code::InvalidType, "expected an integer, got a decimal number"));
        }
        // All characters are digits, so an overflow is out of bounds on the side of its sign.
        let number = token.parse::<i64>();
        let too_low = number.as_ref().map_or(token.starts_with('-'), |n| n < bounds.start());
        match number {
            Ok(n) if bounds.contains(&n) => Ok(n),
            Ok(_) | Err(_) if too_low => {
                Err(self.error(Code::IntegerBelowMinValue, &format!("must be at least {}", bounds.start())))
            }
            Ok(_) | Err(_) => {
                Err(self.error(Code::IntegerAboveMaxValue, &format!("must be at most {}", bounds.end())))
            }
        }
    }

    /// Checks a number against bounds. A float is precise enough to compare; the number is forwarded as spelled.
    pub fn decimal(&self, bounds: RangeInclusive<f64>) -> Result<(), ApiError> {
        self.expect(Kind::Number, "a number")?;
        match self.digits()?.parse::<f64>() {
            Ok(n) if n < *bounds.start() => {
                Err(self.error(Code::DecimalBelowMinValue, &format!("must be at least {}", bounds.start())))
            }
            Ok(n) if n > *bounds.end() => {
                Err(self.error(Code::DecimalAboveMaxValue, &format!("must be at most {}", bounds.end())))
            }
            Ok(_) => Ok(()),
            Err(_) => Err(self.wrong_type("a number")),
        }
    }

    /// Returns a number as spelled, if it is short enough.
    fn digits(&self) -> Result<&'a str, ApiError> {
        if self.raw().len() > MAX_DIGITS {
            return Err(
                self.error(Code::InvalidValue, &format!("the number has more than {MAX_DIGITS} characters"))
            );
        }
        Ok(self.raw())
    }

    pub fn string(&self) -> Result<Cow<'a, str>, ApiError> {
        self.expect(Kind::String, "a string")?;
        text(self.raw).map_err(|_| self.error(Code::InvalidJson, "the string has half a surrogate pair"))
    }

    /// Returns a string as spelled, after checking that it is well-formed. It copies nothing, unlike [`Self::string`].
    pub fn string_token(&self) -> Result<&'a str, ApiError> {
        self.expect(Kind::String, "a string")?;
        let token = self.raw();
        // The parser has checked everything except escapes of surrogates, which begin like this.
        let escapes = memchr::memchr(b'\\', token.as_bytes()).is_some();
        if escapes && (token.contains(r"\ud") || token.contains(r"\uD")) {
            self.string()?;
        }
        Ok(token)
    }

    /// Returns a string as spelled, after checking that it is well-formed and not empty.
    pub fn filled_string_token(&self) -> Result<&'a str, ApiError> {
        match self.string_token()? {
            r#""""# => Err(self.error(Code::EmptyString, "the string is empty")),
            token => Ok(token),
        }
    }

    /// Returns a string that is one of `options`.
    pub fn one_of(&self, options: &[&'static str]) -> Result<&'static str, ApiError> {
        let given = self.string()?;
        options.iter().find(|option| ***option == *given).copied().ok_or_else(|| {
            let named: Vec<_> = options.iter().map(|option| format!("'{option}'")).collect();
            self.error(Code::InvalidValue, &format!("must be {}", named.join(" or ")))
        })
    }

    pub fn object<'s>(&'s self) -> Result<Members<'a, 's>, ApiError> {
        self.expect(Kind::Object, "an object")?;
        let object =
            Object::from_raw(self.raw).map_err(|e| self.error(Code::InvalidJson, &parse_error(&e)))?;
        Ok(Members { object, at: Some(self.at) })
    }

    /// Passes the elements of an array to `take`. There must be 1 to `most`.
    pub fn each(
        &self,
        most: usize,
        take: impl FnMut(Value<'a, '_>) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        self.at_least_one(self.each_if_any(most, take)?)
    }

    /// Passes the elements of an array to `take`, at most `most`, and returns their number. The array is never
    /// collected, so it may have millions of elements.
    pub fn each_if_any(
        &self,
        most: usize,
        mut take: impl FnMut(Value<'a, '_>) -> Result<(), ApiError>,
    ) -> Result<usize, ApiError> {
        self.walk(most, |raw, at| take(Value { raw, at }), |e| self.error(Code::InvalidJson, &parse_error(e)))
    }

    /// Passes the elements of an array to `take`. There must be 1 to `most`, and each must be an object.
    pub fn objects(
        &self,
        most: usize,
        take: impl FnMut(&Members<'a, '_>) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        self.at_least_one(self.objects_if_any(most, take)?)
    }

    /// Passes the elements of an array to `take`, at most `most`, and returns their number. Each must be an object. It
    /// reads no element twice, unlike [`Self::each_if_any`].
    pub fn objects_if_any(
        &self,
        most: usize,
        mut take: impl FnMut(&Members<'a, '_>) -> Result<(), ApiError>,
    ) -> Result<usize, ApiError> {
        // Reads each element separately to find the faulty one.
        let fault = |e: &_| match self.each_if_any(most, |element| element.object().map(drop)) {
            Err(fault) => fault,
            Ok(_) => self.error(Code::InvalidJson, &parse_error(e)),
        };
        self.walk(most, |object, at| take(&Members { object, at: Some(at) }), fault)
    }

    /// Passes each element of an array to `take`, with its location. `fault` converts the parser's errors.
    fn walk<T: Deserialize<'a>>(
        &self,
        most: usize,
        mut take: impl FnMut(T, ParamPath<'_>) -> Result<(), ApiError>,
        fault: impl FnOnce(&serde_json::Error) -> ApiError,
    ) -> Result<usize, ApiError> {
        self.expect(Kind::Array, "an array")?;
        let mut refused = None;
        let mut index = 0;
        let read = each_element(self.raw, |element| {
            let taken = if index == most {
                Err(self.error(Code::ArrayAboveMaxLength, &format!("must have at most {most} elements")))
            } else {
                take(element, ParamPath::Element(&self.at, index))
            };
            index += 1;
            taken.map_err(|e| refused = Some(e)).is_ok()
        });
        match (refused, read) {
            (Some(e), _) => Err(e),
            (None, Err(e)) => Err(fault(&e)),
            (None, Ok(())) => Ok(index),
        }
    }

    fn at_least_one(&self, elements: usize) -> Result<(), ApiError> {
        match elements {
            0 => Err(self.error(Code::EmptyArray, "must have at least one element")),
            _ => Ok(()),
        }
    }

    fn expect(&self, kind: Kind, expected: &str) -> Result<(), ApiError> {
        if self.kind() == kind { Ok(()) } else { Err(self.wrong_type(expected)) }
    }
}
