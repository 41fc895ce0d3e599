//! A process that looks like an agent; see `lariat_testkit::lookalike`.

fn main() {
    lariat_testkit::lookalike::main();
}
