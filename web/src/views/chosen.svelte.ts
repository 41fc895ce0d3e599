// The row that the keys stand on; kept while another view is shown.
class Chosen {
  id = $state('');
}

export const chosen = new Chosen();
