"""What all requests and answers share: errors, limits of a request, the reference of the API."""
