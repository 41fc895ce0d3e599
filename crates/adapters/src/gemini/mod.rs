pub const NAME: &str = "gemini";
pub struct Gemini;
