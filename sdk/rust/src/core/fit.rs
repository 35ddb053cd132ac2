//! Verdicts that fit into the frames of a dispatcher.

use prost::Message;

use crate::limits::{ERROR_BYTES, FRAME_OVERHEAD};
use crate::proto::admission::v1::{AdmissionResponse, Status};
use crate::proto::host::v1::verdict::Outcome;
use crate::proto::host::v1::{HandlerError, Verdict};

/// Ends a text that was too long.
const CUT_OFF: &str = " ... (cut)";

/// Makes a verdict small enough for a dispatcher that takes frames of `limit` bytes. A denial stays a denial: it loses all
/// but its message, then the end of the message. Any other verdict becomes a failure.
pub(super) fn fit(verdict: Verdict, limit: usize) -> Verdict {
    let size = verdict.encoded_len() + FRAME_OVERHEAD;
    if size <= limit {
        return verdict;
    }
    let (status, mut small) = match verdict.outcome {
        Some(Outcome::Response(denial)) if !denial.allowed => {
            (denial.status.unwrap_or_default(), Verdict { outcome: None, ..verdict })
        }
        _ => {
            let text = format!("a verdict of {size} bytes is larger than the {limit} that the dispatcher takes");
            return Verdict { outcome: Some(failure(&text)), ..verdict };
        }
    };
    let denial = |message| {
        let status = Status { status: "Failure".into(), code: status.code, message, ..Status::default() };
        Some(Outcome::Response(AdmissionResponse { status: Some(status), ..AdmissionResponse::default() }))
    };
    small.outcome = denial(String::new());
    // The lengths of the nested messages grow with the text.
    let remaining = limit.saturating_sub(small.encoded_len() + 2 * FRAME_OVERHEAD);
    small.outcome = denial(shorten(&status.message, remaining));
    small
}

/// Cuts a text to at most `limit` bytes, between characters.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let Some(most) = limit.checked_sub(CUT_OFF.len()).filter(|most| *most > 0) else { return String::new() };
    let cut = (0..=most).rev().find(|cut| text.is_char_boundary(*cut)).unwrap_or(0);
    format!("{}{CUT_OFF}", &text[..cut])
}

/// The outcome of a call whose handler gave no verdict.
pub(crate) fn failure(message: &str) -> Outcome {
    Outcome::Error(HandlerError { message: shorten(message, ERROR_BYTES), panicked: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(shorten("short", 5), "short");
        assert_eq!(shorten("ää and so on for long", 13), "ä ... (cut)");
        assert_eq!(shorten("no room for anything", 10), "");
    }

    #[test]
    fn a_denial_that_is_too_long_stays_a_denial_at_every_limit() {
        let status = Status { message: "no ".repeat(200), code: 422, ..Status::default() };
        let warnings = vec!["w".repeat(700)];
        let denial = AdmissionResponse { status: Some(status), warnings, ..AdmissionResponse::default() };
        for limit in 60..700 {
            let outcome = Some(Outcome::Response(denial.clone()));
            let verdict = Verdict { call_id: u64::MAX, hook_index: 3, queue_us: 5, outcome, ..Verdict::default() };
            let fitted = fit(verdict, limit);
            assert!(fitted.encoded_len() + FRAME_OVERHEAD <= limit, "{limit}");
            assert_eq!((fitted.call_id, fitted.hook_index, fitted.queue_us), (u64::MAX, 3, 5), "{limit}");
            let Some(Outcome::Response(response)) = fitted.outcome else { panic!("{limit}: {:?}", fitted.outcome) };
            assert_eq!((response.allowed, response.status.map(|status| status.code)), (false, Some(422)), "{limit}");
        }
    }
}
