// One mode for all components: runes.
export default { compilerOptions: { runes: true } };
