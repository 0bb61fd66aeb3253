// Logs in with a token that stands in the address behind #: browsers send that part to nobody.

const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token !== null) {
  history.replaceState(null, "", location.pathname); // it does not stay in the history either
  document.getElementById("token").value = token;
  document.getElementById("login").submit();
}
